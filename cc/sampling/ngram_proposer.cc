#include "cc/sampling/ngram_proposer.h"

#include <algorithm>
#include <array>
#include <string>

#include "cc/base/option_check.h"

namespace pagemill::sampling {
namespace {

constexpr int32_t kLargestN = 16;
constexpr size_t kFirstEntries = 64;

// Extends the hash of the last n - 1 tokens by one token. The multipliers are those of Steele and
// Vigna, "Computationally Easy, Spectrally Good Multipliers", 2021.
uint64_t AddToken(uint64_t hash, int32_t token) {
  hash = (hash ^ static_cast<uint32_t>(token)) * 0xD1342543DE82EF95u;
  return hash ^ hash >> 32;
}

uint64_t HashBefore(std::span<const int32_t> tokens, size_t end, size_t n) {
  uint64_t hash = 0;
  for (size_t i = 1; i <= n; ++i) hash = AddToken(hash, tokens[end - i]);
  return hash;
}

// The entry of the n-gram before `end`: its own, or the free one for it.
template <typename Entries>
auto& EntryOf(Entries& entries, std::span<const int32_t> tokens, size_t end, size_t n,
              uint64_t hash) {
  const auto same = [&](size_t other) {
    for (size_t i = 1; i <= n; ++i) {
      if (tokens[other - i] != tokens[end - i]) return false;
    }
    return true;
  };
  const size_t mask = entries.size() - 1;
  size_t at = hash & mask;
  while (entries[at] != 0 && !same(static_cast<size_t>(entries[at]))) at = (at + 1) & mask;
  return entries[at];
}

}  // namespace

Status NgramProposerOptions::Validate() const {
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("max_num_seqs", max_num_seqs, 1));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("min_n", min_n, 1));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("max_n", max_n, min_n));
  if (max_n <= kLargestN) return OkStatus();
  return InvalidArgument("max_n is " + std::to_string(max_n) + ", it must be at most " +
                         std::to_string(kLargestN));
}

NgramProposer::NgramProposer(const NgramProposerOptions& options) : options_(options) {
  PAGEMILL_CHECK(options.Validate().ok());
  slots_.resize(static_cast<size_t>(options.max_num_seqs));
}

void NgramProposer::Start(step::RequestIndex index, std::span<const int32_t> tokens) {
  Slot& slot = slots_[index.value()];
  slot = Slot();
  if (tokens.empty()) return;
  slot.tokens.reserve(tokens.size());
  slot.tables.resize(static_cast<size_t>(options_.max_n - options_.min_n + 1));
  for (Table& table : slot.tables) table.entries.resize(kFirstEntries);
  Observe(index, tokens);
}

void NgramProposer::Observe(step::RequestIndex index, std::span<const int32_t> tokens) {
  Slot& slot = slots_[index.value()];
  PAGEMILL_CHECK(!slot.tables.empty());
  for (int32_t token : tokens) Append(&slot, token);
}

// N-grams enter the tables when the next token is known, so a suffix only finds earlier
// occurrences.
void NgramProposer::Append(Slot* slot, int32_t token) const {
  const size_t end = slot->tokens.size();
  uint64_t hash = 0;
  for (int32_t n = 1; n <= options_.max_n && static_cast<size_t>(n) <= end; ++n) {
    hash = AddToken(hash, slot->tokens[end - static_cast<size_t>(n)]);
    if (n < options_.min_n) continue;
    Table& table = slot->tables[n - options_.min_n];
    int32_t& entry = EntryOf(table.entries, slot->tokens, end, static_cast<size_t>(n), hash);
    const bool is_new = entry == 0;
    entry = static_cast<int32_t>(end);
    if (is_new && ++table.used * 4 > table.entries.size() * 3) Grow(slot->tokens, n, &table);
  }
  slot->tokens.push_back(token);
}

void NgramProposer::Grow(const std::vector<int32_t>& tokens, int32_t n, Table* table) const {
  const auto size = static_cast<size_t>(n);
  std::vector<int32_t> larger(table->entries.size() * 2);
  for (int32_t entry : table->entries) {
    if (entry == 0) continue;
    const auto end = static_cast<size_t>(entry);
    EntryOf(larger, tokens, end, size, HashBefore(tokens, end, size)) = entry;
  }
  table->entries = std::move(larger);
}

int32_t NgramProposer::FindSuffix(const Slot& slot) const {
  const size_t end = slot.tokens.size();
  std::array<uint64_t, kLargestN + 1> hashes = {};
  int32_t n = 0;
  while (n < options_.max_n && static_cast<size_t>(n) < end) {
    ++n;
    hashes[n] = AddToken(hashes[n - 1], slot.tokens[end - static_cast<size_t>(n)]);
  }
  for (; n >= options_.min_n; --n) {
    const Table& table = slot.tables[n - options_.min_n];
    const int32_t found =
        EntryOf(table.entries, slot.tokens, end, static_cast<size_t>(n), hashes[n]);
    if (found != 0) return found;
  }
  return 0;
}

void NgramProposer::Propose(step::RequestIndex index, int32_t max_tokens,
                            std::vector<int32_t>* drafts) {
  drafts->clear();
  const Slot& slot = slots_[index.value()];
  const auto behind = static_cast<size_t>(FindSuffix(slot));
  if (behind == 0) return;
  for (size_t i = behind; i < behind + static_cast<size_t>(std::max(0, max_tokens)); ++i) {
    const size_t known = slot.tokens.size();
    drafts->push_back(i < known ? slot.tokens[i] : (*drafts)[i - known]);
  }
}

size_t NgramProposer::bytes(step::RequestIndex index) const {
  const Slot& slot = slots_[index.value()];
  size_t count = slot.tokens.capacity();
  for (const Table& table : slot.tables) count += table.entries.capacity();
  return count * sizeof(int32_t);
}

void NgramProposer::CheckIntegrity() const {
  for (const Slot& slot : slots_) {
    PAGEMILL_CHECK(slot.tables.empty() == slot.tokens.empty());
    for (size_t i = 0; i < slot.tables.size(); ++i) {
      const Table& table = slot.tables[i];
      const size_t n = i + static_cast<size_t>(options_.min_n);
      size_t used = 0;
      for (const int32_t& entry : table.entries) {
        if (entry == 0) continue;
        ++used;
        const auto end = static_cast<size_t>(entry);
        PAGEMILL_CHECK(end >= n && end < slot.tokens.size());
        const uint64_t hash = HashBefore(slot.tokens, end, n);
        PAGEMILL_CHECK(&EntryOf(table.entries, slot.tokens, end, n, hash) == &entry);
      }
      PAGEMILL_CHECK(used == table.used && used * 4 <= table.entries.size() * 3);
    }
  }
}

}  // namespace pagemill::sampling
