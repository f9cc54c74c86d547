#include "cuda/gpu_wgmma.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <deque>
#include <map>
#include <utility>
#include <vector>

namespace pagemill::gpu::emulation {
namespace {

// What a barrier's word holds. Bytes that arrive before they are expected make `bytes` negative.
struct Phases {
  uint16_t arrivals, left;  // of a phase, and of them in this one
  int32_t bytes_and_parity;

  int32_t bytes() const { return bytes_and_parity >> 1; }
  uint32_t parity() const { return static_cast<uint32_t>(bytes_and_parity & 1); }
  void Expect(int32_t more) { bytes_and_parity += 2 * more; }
  void EndIfComplete() {
    if (left > 0 || bytes() != 0) return;
    left = arrivals;
    bytes_and_parity ^= 1;
  }
};
static_assert(sizeof(Phases) == sizeof(uint64_t));

constexpr uint64_t kPoison = ~uint64_t{0};

template <typename Change>
void ChangePhases(uint64_t* barrier, const Location& where, const Change& change) {
  if (*barrier == kPoison) CurrentBlock().Fail("a barrier is used before InitBarrier()", where);
  auto phases = std::bit_cast<Phases>(*barrier);
  change(phases);
  phases.EndIfComplete();
  *barrier = std::bit_cast<uint64_t>(phases);
}

// What a thread has started.
struct Products {
  std::deque<std::vector<PartOfProduct>> groups;  // that are not computed, the oldest first
  std::vector<PartOfProduct> issued;              // since the last group
  size_t committed = 0;                           // groups
};

struct WarpgroupProducts {
  uint64_t block = 0;  // its serial
  std::array<Products, kWarpgroupThreads> threads;
};

int ThreadOfBlock() { return CurrentBlock().warp() * 32 + CurrentBlock().lane(); }

WarpgroupProducts& ProductsOfWarpgroup() {
  thread_local std::map<int, WarpgroupProducts> warpgroups;
  WarpgroupProducts& own = warpgroups[ThreadOfBlock() / kWarpgroupThreads];
  if (std::exchange(own.block, CurrentBlock().serial()) != CurrentBlock().serial()) {
    own.threads = {};
  }
  return own;
}

Products& ProductsOfThread() {
  return ProductsOfWarpgroup()
      .threads[static_cast<size_t>(ThreadOfBlock() % kWarpgroupThreads)];
}

bool IsAligned(const void* memory, uintptr_t to) {
  return reinterpret_cast<uintptr_t>(memory) % to == 0;
}

// A row of a tile. One of bf16 has zeros in the second half.
std::array<float, kTileRowBytes> RowOfTile(ProductType type, const std::byte* tile, int row) {
  std::array<float, kTileRowBytes> values = {};
  for (int byte = 0; byte < kTileRowBytes; byte += ElementBytes(type)) {
    const std::byte* const from = tile + TilePiece(row, byte / 16) + byte % 16;
    float& to = values[static_cast<size_t>(byte / ElementBytes(type))];
    if (type == ProductType::kF8E4M3) {
      to = F8E4M3ToFloat(std::to_integer<uint8_t>(*from));
    } else {
      BFloat16 value;
      std::memcpy(&value, from, sizeof(value));
      to = ToFloat(value);
    }
  }
  return values;
}

// Adds it to the sums of thread `thread` of a warpgroup.
void Compute(const PartOfProduct& part, int thread) {
  const int lane = thread % 32, first_w = thread / 32 * 16 + lane / 4;
  const auto size = static_cast<size_t>(kTileRowBytes / ElementBytes(part.type));
  const std::array of_w = {RowOfTile(part.type, part.w, first_w),
                           RowOfTile(part.type, part.w, first_w + 8)};
  for (int first_x = 0; first_x < part.rows; first_x += 8) {
    for (int i = 0; i < 2; ++i) {
      const auto of_x = RowOfTile(part.type, part.x, first_x + lane % 4 * 2 + i);
      for (int j = 0; j < 2; ++j) {
        float sum = 0;
        for (size_t k = 0; k < size; ++k) sum += of_w[static_cast<size_t>(j)][k] * of_x[k];
        part.sums[first_x / 2 + 2 * j + i] += sum;
      }
    }
  }
}

}  // namespace

std::byte* Aligned(std::byte* memory) {
  const uintptr_t beyond = reinterpret_cast<uintptr_t>(memory) % kSharedAlignment;
  return memory + (kSharedAlignment - beyond) % kSharedAlignment;
}

void InitPhases(uint64_t* barrier, int arrivals, const Location& where) {
  if (*barrier != kPoison) CurrentBlock().Fail("a barrier is initialized twice", where);
  const auto count = static_cast<uint16_t>(arrivals);
  *barrier = std::bit_cast<uint64_t>(Phases{count, count, 0});
}

void ArriveAt(uint64_t* barrier, int expected_bytes, const Location& where) {
  ChangePhases(barrier, where, [&](Phases& phases) {
    if (phases.left == 0) CurrentBlock().Fail("more threads arrive than a phase has", where);
    --phases.left;
    phases.Expect(expected_bytes);
  });
}

void AwaitOver(uint64_t* barrier, uint32_t parity, const Location& where) {
  constexpr int kMostTurns = 2000;  // of all other threads
  if (*barrier == kPoison) CurrentBlock().Fail("a barrier is used before InitBarrier()", where);
  for (int turn = 0; std::bit_cast<Phases>(*barrier).parity() == parity; ++turn) {
    if (turn == kMostTurns) CurrentBlock().Fail("a phase of a barrier does not end", where);
    CurrentBlock().WaitForPeers(where);
  }
}

void CopyTile(void* to, const TileMap& map, int column, int row, int matrix, uint64_t* barrier,
              const Location& where) {
  if (!IsAligned(to, kSharedAlignment)) {
    CurrentBlock().Fail("a tile is not aligned to kSharedAlignment", where);
  }
  auto* const tile = static_cast<std::byte*>(to);
  const auto* const first = static_cast<const std::byte*>(map.data) +
                            map.matrix_bytes * std::min<int64_t>(matrix, map.matrices - 1);
  const int size = ElementBytes(map.type);
  for (int r = 0; r < map.tile_rows; ++r) {
    for (int byte = 0; byte < kTileRowBytes; ++byte) {
      const bool exists = matrix < map.matrices && row + r < map.rows &&
                          column + byte / size < map.columns;
      tile[TilePiece(r, byte / 16) + byte % 16] =
          exists ? first[(row + r) * map.row_bytes + column * size + byte] : std::byte{0};
    }
  }
  ChangePhases(barrier, where,
               [&](Phases& phases) { phases.Expect(-map.tile_rows * kTileRowBytes); });
}

void IssueProduct(const PartOfProduct& part, const Location& where) {
  Block& block = CurrentBlock();
  if (block.options().warp_lanes != 32) {
    block.Fail("products of warpgroups are for warps of 32 lanes", where);
  }
  if (!IsAligned(part.w, 8 * kTileRowBytes) || !IsAligned(part.x, 8 * kTileRowBytes)) {
    block.Fail("a product begins within eight rows of a tile", where);
  }
  ProductsOfThread().issued.push_back(part);
}

void CommitIssuedProducts() {
  Products& products = ProductsOfThread();
  products.groups.push_back(std::exchange(products.issued, {}));
  ++products.committed;
}

void ComputeProducts(size_t under_way, const Location& where) {
  constexpr int kMostTurns = 2000;  // of all other threads
  const size_t committed = ProductsOfThread().committed;
  if (committed <= under_way) return;
  const size_t wanted = committed - under_way;
  auto& threads = ProductsOfWarpgroup().threads;
  const auto has_committed = [&](const Products& each) { return each.committed >= wanted; };
  for (int turn = 0; !std::ranges::all_of(threads, has_committed); ++turn) {
    if (turn == kMostTurns) {
      CurrentBlock().Fail("not all threads of a warpgroup start a product", where);
    }
    CurrentBlock().WaitForPeers(where);
  }
  for (int thread = 0; thread < kWarpgroupThreads; ++thread) {
    Products& of_thread = threads[static_cast<size_t>(thread)];
    while (of_thread.committed - of_thread.groups.size() < wanted) {
      for (const PartOfProduct& part : of_thread.groups.front()) Compute(part, thread);
      of_thread.groups.pop_front();
    }
  }
}

void StoreFragments(const uint32_t (&pairs)[4], void* row, const Location& where) {
  Block& block = CurrentBlock();
  if (!IsAligned(row, 16)) block.Fail("a row of StoreTransposed is not aligned to 16 bytes", where);
  const std::array<uint32_t, 4> own = {pairs[0], pairs[1], pairs[2], pairs[3]};
  const auto matrix = static_cast<size_t>(block.lane() / 8);
  const int column = block.lane() % 8;
  const auto stored = Exchange(AllLanes(), own, where, [&](const Exchanged& lanes) {
    std::array<uint16_t, 8> values;
    for (int i = 0; i < 8; ++i) {
      const uint32_t pair = lanes.By<std::array<uint32_t, 4>>(4 * i + column / 2)[matrix];
      values[static_cast<size_t>(i)] = static_cast<uint16_t>(pair >> column % 2 * 16);
    }
    return values;
  });
  std::memcpy(row, stored.data(), sizeof(stored));
}

bool CountArrival(uint32_t* counter, int warps, const Location& where) {
  uint32_t before = 0;
  if (CurrentBlock().lane() == 0) {
    before = *counter;
    if (before >= static_cast<uint32_t>(warps)) {
      CurrentBlock().Fail("a counter of warps was not 0 before the first", where);
    }
    *counter = before + 1 == static_cast<uint32_t>(warps) ? 0 : before + 1;
  }
  return Shuffle(AllLanes(), before, /*source=*/0, where) + 1 == static_cast<uint32_t>(warps);
}

}  // namespace pagemill::gpu::emulation
