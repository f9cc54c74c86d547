#include "cc/grammar/schema_compiler.h"

#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>

#include "cc/grammar/token_texts.h"
#include "cc/step/token_mask.h"

// xgrammar's log: an error becomes the Status of the call. Warnings, which a request could write
// without end, are dropped.
namespace xgrammar {

[[noreturn]] void LogFatalImpl(const std::string&, int, const std::string& message) {
  throw std::runtime_error(message);
}

void LogMessageImpl(const std::string&, int, int, const std::string&) {}

}  // namespace xgrammar

namespace pagemill::grammar {
namespace {

constexpr int64_t kMaxCacheBytes = int64_t{48} << 20;  // masks of rules that schemas share
constexpr int kMaxSpaces = 8;  // between two tokens of JSON: some models like to write no end

// Calls xgrammar. `call` returns a StatusOr or a Status.
template <typename Call>
auto Guarded(const Call& call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::exception& e) {
    return InvalidArgument(e.what());
  }
}

// Where in a JSON text an output is, as far as the grammar leaves it open.
class Position {
 public:
  explicit Position(const TokenTexts& texts) : texts_(&texts) {}

  void Advance(const std::string& bytes) {
    for (const char c : bytes) {
      if (in_string_) {
        in_string_ = escaped_ || c != '"';
        escaped_ = !escaped_ && c == '\\';
      } else {
        in_string_ = c == '"';
        num_spaces_ = IsJsonSpace(c) ? num_spaces_ + 1 : 0;
      }
      last_ = c;
    }
  }

  // A mask of tokens that may not come here; empty if all may that the grammar allows.
  std::span<const uint32_t> Barred() const {
    if (last_ == kSurrogateLead) return texts_->ends_surrogate();
    if (!in_string_ && num_spaces_ >= kMaxSpaces) return texts_->begins_with_space();
    return {};
  }

 private:
  const TokenTexts* texts_;
  bool in_string_ = false;
  bool escaped_ = false;  // behind a backslash
  char last_ = 0;
  int32_t num_spaces_ = 0;  // outside strings
};

class SchemaMatcher final : public step::TokenMatcher {
 public:
  SchemaMatcher(const xgrammar::CompiledGrammar& grammar, std::shared_ptr<TokenTexts> texts)
      : matcher_(grammar), texts_(std::move(texts)), positions_(1, Position(*texts_)) {}

  Status FillMask(std::span<uint32_t> mask) override {
    if (!failure_.ok()) return failure_;
    if (mask.size() != texts_->begins_with_space().size()) {
      return Internal("the mask is not as long as the vocabulary");
    }
    if (num_eos_ > 0) {
      Allow(texts_->eos_token_ids(), mask);
      return OkStatus();
    }
    if (const std::vector<int32_t>& forced = Forced(); !forced.empty()) {
      Allow(std::span(forced).first(1), mask);
      return failure_;
    }
    Keep([&] { FillFromGrammar(mask); });
    const std::span<const uint32_t> barred = positions_.back().Barred();
    for (size_t i = 0; i < barred.size(); ++i) mask[i] &= ~barred[i];
    return failure_;
  }

  bool Accept(int32_t token_id) override {
    if (token_id < 0 || token_id >= texts_->vocab_size() || !failure_.ok()) return false;
    const bool is_eos = texts_->IsEos(token_id);
    if (num_eos_ > 0) {
      if (!is_eos) return false;
      ++num_eos_;
      return true;
    }
    if (const std::vector<int32_t>& forced = Forced(); !forced.empty() && forced[0] != token_id) {
      return false;
    }
    Position position = positions_.back();
    if (const auto barred = position.Barred(); !barred.empty()) {
      if (step::AllowsToken(barred, token_id)) return false;
    }
    bool accepted = false;
    Keep([&] { accepted = matcher_.AcceptToken(token_id); });
    if (!accepted) return false;
    if (!is_eos) position.Advance(texts_->bytes(token_id));
    num_eos_ = is_eos ? 1 : 0;
    positions_.push_back(position);
    forced_.reset();
    return true;
  }

  void Rollback(int32_t num_tokens) override {
    while (num_tokens > 0 && num_eos_ > 1) --num_tokens, --num_eos_;
    if (num_tokens == 0) return;
    Keep([&] { matcher_.Rollback(num_tokens); });
    positions_.erase(positions_.end() - num_tokens, positions_.end());
    num_eos_ = 0;
    forced_.reset();
  }

  void AppendForced(size_t most, std::vector<int32_t>* token_ids) override {
    if (num_eos_ > 0) return;
    const std::vector<int32_t>& forced = Forced();
    const size_t count = std::min(most, forced.size());
    token_ids->insert(token_ids->end(), forced.begin(), forced.begin() + count);
  }

 private:
  static void Allow(std::span<const int32_t> token_ids, std::span<uint32_t> mask) {
    std::ranges::fill(mask, 0u);
    for (const int32_t token : token_ids) step::AllowToken(mask, token);
  }

  // An exception is the failure of this FillMask(), or of the next one.
  template <typename Call>
  void Keep(const Call& call) {
    try {
      call();
    } catch (const std::exception& e) {
      if (failure_.ok()) failure_ = Internal(std::string("a schema's matcher failed: ") + e.what());
    }
  }

  void FillFromGrammar(std::span<uint32_t> mask) {
    int64_t shape = static_cast<int64_t>(mask.size());
    DLTensor tensor = {};
    tensor.data = mask.data();
    tensor.device = {kDLCPU, 0};
    tensor.ndim = 1;
    tensor.dtype = xgrammar::GetBitmaskDLType();
    tensor.shape = &shape;
    matcher_.FillNextTokenBitmask(&tensor);
  }

  // Tokens that the text which must come next begins with. While there are any, none but the first
  // may come: the model would else spell the same text by other tokens, one after the other.
  const std::vector<int32_t>& Forced() {
    if (!forced_) {
      forced_.emplace();
      Keep([&] {
        const std::string text = matcher_.FindJumpForwardString();
        if (text.size() > 1) *forced_ = texts_->Beginning(text);
      });
    }
    return *forced_;
  }

  xgrammar::GrammarMatcher matcher_;
  const std::shared_ptr<TokenTexts> texts_;
  std::vector<Position> positions_;  // at the beginning, and behind each token but further ends
  int32_t num_eos_ = 0;              // accepted
  std::optional<std::vector<int32_t>> forced_;  // at this position, if known
  Status failure_;
};

}  // namespace

struct SchemaCompiler::Impl {
  explicit Impl(SchemaCompilerOptions options)
      : texts(std::make_shared<TokenTexts>(std::move(options))),
        // One thread: an exception on another thread of xgrammar's would end the process.
        compiler(xgrammar::TokenizerInfo(texts->all_bytes(), xgrammar::VocabType::RAW,
                                         texts->vocab_size(), texts->eos_token_ids()),
                 /*max_threads=*/1, /*cache_enabled=*/true, kMaxCacheBytes) {}

  const std::shared_ptr<TokenTexts> texts;
  xgrammar::GrammarCompiler compiler;
};

SchemaCompiler::SchemaCompiler(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SchemaCompiler::~SchemaCompiler() = default;

StatusOr<std::unique_ptr<SchemaCompiler>> SchemaCompiler::Create(SchemaCompilerOptions options) {
  if (options.token_bytes.empty()) return InvalidArgument("a vocabulary has at least one token");
  if (options.eos_token_ids.empty()) return InvalidArgument("no token ends an output");
  for (const int32_t token : options.eos_token_ids) {
    if (token < 0 || static_cast<size_t>(token) >= options.token_bytes.size()) {
      return InvalidArgument("token " + std::to_string(token) + " is outside the vocabulary");
    }
  }
  return Guarded([&]() -> StatusOr<std::unique_ptr<SchemaCompiler>> {
    auto impl = std::make_unique<Impl>(std::move(options));
    return std::unique_ptr<SchemaCompiler>(new SchemaCompiler(std::move(impl)));
  });
}

StatusOr<step::TokenMatcherFactory> SchemaCompiler::Compile(const std::string& schema) {
  return Guarded([&]() -> StatusOr<step::TokenMatcherFactory> {
    xgrammar::CompiledGrammar grammar = impl_->compiler.CompileJSONSchema(
        schema, /*any_whitespace=*/true, /*indent=*/std::nullopt, /*separators=*/std::nullopt,
        /*strict_mode=*/false);
    return step::TokenMatcherFactory(
        [grammar = std::move(grammar),
         texts = impl_->texts]() -> StatusOr<std::unique_ptr<step::TokenMatcher>> {
          return Guarded([&]() -> StatusOr<std::unique_ptr<step::TokenMatcher>> {
            return std::unique_ptr<step::TokenMatcher>(new SchemaMatcher(grammar, texts));
          });
        });
  });
}

}  // namespace pagemill::grammar
