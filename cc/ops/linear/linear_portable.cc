// `linear` in GCC vector extensions: four lanes, which is one register on ASIMD, VXE and SSE2.
#include <cstdint>
#include <cstring>

#include "cc/ops/block_format/block_layout.h"
#include "cc/ops/block_format/decoder_portable.h"
#include "cc/ops/linear/float_gemm_inl.h"
#include "cc/ops/linear/float_gemm_kernels.h"

namespace pagemill::ops::linear {
namespace {

struct Portable {
  using Vec = float __attribute__((vector_size(16)));
  static constexpr int kLanes = 4;
  static constexpr int64_t kDirectN = 2;
  static constexpr int64_t kMaxDirectN = 2;
#if defined(__x86_64__)
  static constexpr int64_t kTileN = 2;  // 16 registers: 8 sums and their operands
#else
  static constexpr int64_t kTileN = 4;  // 32 registers: 16 sums and their operands
#endif

  static Vec Zero() { return Vec{0, 0, 0, 0}; }
  static Vec Load(const void* from) {
    Vec v;
    std::memcpy(&v, from, sizeof(v));
    return v;
  }
  static Vec LoadPartial(const void* from, int count) {
    float lanes[kLanes] = {};
    std::memcpy(lanes, from, sizeof(float) * count);
    return Load(lanes);
  }
  static void Store(float* to, Vec v) { std::memcpy(to, &v, sizeof(v)); }
  // Contracted to one instruction where the CPU has it (-ffp-contract=fast, GCC's default).
  static Vec Fma(Vec a, Vec b, Vec c) { return a * b + c; }
  static Float4 Sum4(const Vec v[4]) {
    Float4 out;
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) out[i] = (v[i][0] + v[i][2]) + (v[i][1] + v[i][3]);
    return out;
  }
  [[gnu::always_inline]] static void Prefetch(const uint8_t* p) { __builtin_prefetch(p); }

  // A block is decoded to memory by vectorised loops, then read back a vector at a time.
  template <DType kDType>
  struct Decoder {
    static constexpr bool kPlain =
        kDType == DType::kF32 || kDType == DType::kBF16 || kDType == DType::kF16;
    static constexpr bool kRowsMayEndInside = kPlain;
    static constexpr int kBlocks = kPlain ? 16 : 1;
    static constexpr int kBlockElements = LayoutOf(kDType).elements;
    static constexpr int kBlockBytes = LayoutOf(kDType).bytes;
    static constexpr int kElements = kBlocks * kBlockElements;
    static constexpr int kBytes = kBlocks * kBlockBytes;
    static constexpr int kVectors = 1;
    static constexpr int kParts = kElements / kLanes;
    struct State {
      alignas(16) float weights[kElements];
    };
    static void Begin(const uint8_t* block, State* state) {
      if constexpr (kPlain) {
        for (int i = 0; i < kBlocks; ++i) {
          DecodeBlock<kDType>(block + i * kBlockBytes, state->weights + i);
        }
      } else {
        DecodeOutOfLine(block, state->weights);
      }
    }
    // A call for 32 or 256 elements costs little. Inlined for each of four rows, the loops of the
    // formats take GCC minutes and a gigabyte to compile for s390x.
    [[gnu::noinline]] static void DecodeOutOfLine(const uint8_t* __restrict block,
                                                  float* __restrict out) {
      DecodeBlock<kDType>(block, out);
    }
    static void Decode(const State& state, int part, Vec* out) {
      *out = Load(state.weights + part * kLanes);
    }
    static Vec DecodePartial(const uint8_t* from, int count) {
      float lanes[kLanes] = {};
      for (int i = 0; i < count; ++i) DecodeBlock<kDType>(from + i * kBlockBytes, lanes + i);
      return Load(lanes);
    }
  };
};

}  // namespace

constinit const FloatGemm kPortableKernels = kFloatGemmOf<Portable>;

}  // namespace pagemill::ops::linear
