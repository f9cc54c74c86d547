#include "cuda/emulation/vocabulary.h"

#include <array>
#include <utility>

namespace pagemill::gpu::emulation {
namespace {

struct Fragments {
  std::array<uint32_t, 4> a;
  std::array<uint32_t, 2> b;
};

// Element `which` of a register.
float Bf16Of(uint32_t pair, int which) {
  return std::bit_cast<float>(which == 0 ? pair << 16 : pair & 0xffff0000u);
}
int32_t Int8Of(uint32_t quad, int which) { return static_cast<int8_t>(quad >> 8 * which); }

// Adds A [16, kDepth] times B [kDepth, 8] to C; registers hold kDepth / 8 elements. The sums go
// through K in its order.
template <int kDepth, auto kElement, typename Sum>
void MultiplyTile(Sum (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                  const Location& where) {
  constexpr int kInRegister = kDepth / 8;
  constexpr int kLanes = 4;  // that share a row of A, or a column of B
  if (CurrentBlock().options().warp_lanes != 32) {
    CurrentBlock().Fail("tensor core products are for warps of 32 lanes", where);
  }
  const Fragments own = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  const int group = CurrentBlock().lane() / kLanes, in_group = CurrentBlock().lane() % kLanes;
  const auto products = Exchange(0xffffffffu, own, where, [&](const Exchanged& lanes) {
    Fragments of_row[kLanes], of_column[2][kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
      of_row[lane] = lanes.By<Fragments>(group * kLanes + lane);
      for (int i = 0; i < 2; ++i) {
        of_column[i][lane] = lanes.By<Fragments>((2 * in_group + i) * kLanes + lane);
      }
    }
    std::array<Sum, 4> sums = {};
    for (size_t half = 0; half < 2; ++half) {
      for (int lane = 0; lane < kLanes; ++lane) {
        for (int element = 0; element < kInRegister; ++element) {
          for (size_t i = 0; i < 4; ++i) {  // two rows, eight apart, of two columns
            sums[i] += kElement(of_row[lane].a[i / 2 + half * 2], element) *
                       kElement(of_column[i % 2][lane].b[half], element);
          }
        }
      }
    }
    return sums;
  });
  for (size_t i = 0; i < 4; ++i) c[i] += products[i];
}

}  // namespace

void IssueCopy(void* to, const void* from, size_t bytes, const Location& where) {
  Block& block = CurrentBlock();
  if (reinterpret_cast<uintptr_t>(to) % bytes != 0 ||
      reinterpret_cast<uintptr_t>(from) % bytes != 0) {
    block.Fail("an asynchronous copy is not aligned to its size", where);
  }
  std::memset(to, 0xff, bytes);
  block.thread().issued.push_back({to, from, bytes});
}

void CommitIssuedCopies() {
  Thread& thread = CurrentBlock().thread();
  thread.committed.push_back(std::exchange(thread.issued, {}));
}

void LandCopies(size_t under_way) {
  std::vector<std::vector<AsyncCopy>>& groups = CurrentBlock().thread().committed;
  while (groups.size() > under_way) {
    for (const AsyncCopy& copy : groups.front()) std::memcpy(copy.to, copy.from, copy.bytes);
    groups.erase(groups.begin());
  }
}

void MultiplyFragments(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                       const Location& where) {
  MultiplyTile<16, Bf16Of>(c, a, b, where);
}

void MultiplyFragments(int32_t (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                       const Location& where) {
  MultiplyTile<32, Int8Of>(c, a, b, where);
}

void MultiplyWideFragments(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[4],
                           const Location& where) {
  struct WideFragments {
    std::array<uint32_t, 4> a, b;
  };
  Block& block = CurrentBlock();
  if (block.options().warp_lanes != 64) {
    block.Fail("matrix core products are for warps of 64 lanes", where);
  }
  const WideFragments own = {{a[0], a[1], a[2], a[3]}, {b[0], b[1], b[2], b[3]}};
  const int column = block.lane() % 16, first_row = block.lane() / 16 * 4;
  const auto products = Exchange(~uint64_t{0}, own, where, [&](const Exchanged& lanes) {
    std::array<float, 4> sums = {};
    for (int part = 0; part < 4; ++part) {  // of K
      const auto of_b = lanes.By<WideFragments>(part * 16 + column).b;
      for (int i = 0; i < 4; ++i) {
        const auto of_a = lanes.By<WideFragments>(part * 16 + first_row + i).a;
        for (size_t k = 0; k < 8; ++k) {
          const int which = static_cast<int>(k % 2);
          sums[static_cast<size_t>(i)] += Bf16Of(of_a[k / 2], which) * Bf16Of(of_b[k / 2], which);
        }
      }
    }
    return sums;
  });
  for (size_t i = 0; i < 4; ++i) c[i] += products[i];
}

void LoadFragments(uint32_t (&r)[4], const void* row, const Location& where) {
  using Row = std::array<uint16_t, 8>;
  Block& block = CurrentBlock();
  if (block.options().warp_lanes != 32) {
    block.Fail("LoadTransposed is for warps of 32 lanes", where);
  }
  if (reinterpret_cast<uintptr_t>(row) % sizeof(Row) != 0) {
    block.Fail("a row of LoadTransposed is not aligned to 16 bytes", where);
  }
  Row own;
  std::memcpy(&own, row, sizeof(Row));
  const size_t column = static_cast<size_t>(block.lane() / 4);
  const int first = 2 * (block.lane() % 4);
  const auto pairs = Exchange(0xffffffffu, own, where, [&](const Exchanged& lanes) {
    std::array<uint32_t, 4> read;
    for (int i = 0; i < 4; ++i) {
      read[static_cast<size_t>(i)] =
          lanes.By<Row>(8 * i + first)[column] |
          static_cast<uint32_t>(lanes.By<Row>(8 * i + first + 1)[column]) << 16;
    }
    return read;
  });
  for (size_t i = 0; i < 4; ++i) r[i] = pairs[i];
}

}  // namespace pagemill::gpu::emulation
