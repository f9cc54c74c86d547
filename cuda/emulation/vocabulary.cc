#include "cuda/emulation/vocabulary.h"

#include <array>
#include <numeric>
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

template <typename T, size_t kRows, size_t kColumns>
using Matrix = std::array<std::array<T, kColumns>, kRows>;

// c = A times B; sums go through K in its order.
template <typename T, size_t kRows, size_t kDepth, size_t kColumns>
void Multiply(const Matrix<T, kRows, kDepth>& a, const Matrix<T, kDepth, kColumns>& b,
              Matrix<T, kRows, kColumns>& c) {
  c = {};
  for (size_t row = 0; row < kRows; ++row) {
    for (size_t k = 0; k < kDepth; ++k) {
      for (size_t column = 0; column < kColumns; ++column) {
        c[row][column] += a[row][k] * b[k][column];
      }
    }
  }
}

// Adds A [16, kDepth] times B [kDepth, 8] to C; registers hold kDepth / 8 elements. Four lanes
// share a row of A, or a column of B; a lane has columns 2 * (lane % 4) and the next of rows
// lane / 4 and eight further.
template <size_t kDepth, auto kElement, typename Sum>
void MultiplyTile(Sum (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                  const Location& where) {
  constexpr size_t kInRegister = kDepth / 8;
  if (CurrentBlock().options().warp_lanes != 32 || CurrentBlock().options().is_of_amd) {
    CurrentBlock().Fail("tensor core products are for NVIDIA's warps of 32 lanes", where);
  }
  const Fragments own = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  using Tile = Matrix<Sum, 16, 8>;
  const Tile& sums = ComputeOnce<Tile>(own, where, [](const Exchanged& lanes, Tile& tile) {
    Matrix<Sum, 16, kDepth> left;
    Matrix<Sum, kDepth, 8> right;
    for (size_t lane = 0; lane < 32; ++lane) {
      const Fragments of_lane = lanes.By<Fragments>(static_cast<int>(lane));
      for (size_t i = 0; i < kInRegister; ++i) {
        const int element = static_cast<int>(i);
        for (size_t half = 0; half < 2; ++half) {
          const size_t k = half * kDepth / 2 + lane % 4 * kInRegister + i;
          left[lane / 4][k] = kElement(of_lane.a[2 * half], element);
          left[lane / 4 + 8][k] = kElement(of_lane.a[2 * half + 1], element);
          right[k][lane / 4] = kElement(of_lane.b[half], element);
        }
      }
    }
    Multiply(left, right, tile);
  });
  const size_t row = static_cast<size_t>(CurrentBlock().lane() / 4);
  const size_t column = static_cast<size_t>(2 * (CurrentBlock().lane() % 4));
  for (size_t i = 0; i < 4; ++i) c[i] += sums[row + i / 2 * 8][column + i % 2];
}

}  // namespace

void IssueCopy(void* to, const void* from, size_t bytes, const Location& where) {
  Block& block = CurrentBlock();
  if (reinterpret_cast<uintptr_t>(to) % bytes != 0 ||
      reinterpret_cast<uintptr_t>(from) % bytes != 0) {
    block.Fail("an asynchronous copy is not aligned to its size", where);
  }
  std::memset(to, 0xff, bytes);
  block.thread().copies.push_back({to, from, bytes});
  ++block.thread().issued;
}

void CommitIssuedCopies() {
  Thread& thread = CurrentBlock().thread();
  thread.committed.push_back(std::exchange(thread.issued, 0));
}

void LandCopies(size_t under_way) {
  Thread& thread = CurrentBlock().thread();
  if (thread.committed.size() <= under_way) return;
  const auto groups = thread.committed.begin();
  const auto first_left = thread.committed.end() - static_cast<ptrdiff_t>(under_way);
  const size_t num_landing = std::accumulate(groups, first_left, size_t{0});
  const auto copies = thread.copies.begin();
  const auto first_kept = copies + static_cast<ptrdiff_t>(num_landing);
  for (auto copy = copies; copy != first_kept; ++copy) {
    std::memcpy(copy->to, copy->from, copy->bytes);
  }
  thread.copies.erase(copies, first_kept);
  thread.committed.erase(groups, first_left);
}

void MultiplyFragments(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                       const Location& where) {
  MultiplyTile<16, Bf16Of>(c, a, b, where);
}

void MultiplyFragments(int32_t (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                       const Location& where) {
  MultiplyTile<32, Int8Of>(c, a, b, where);
}

void LoadFragments(uint32_t (&r)[4], const void* row, const Location& where) {
  using Row = std::array<uint16_t, 8>;
  Block& block = CurrentBlock();
  if (block.options().warp_lanes != 32 || block.options().is_of_amd) {
    block.Fail("LoadTransposed is for NVIDIA's warps of 32 lanes", where);
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
