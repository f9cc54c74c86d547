#include "cc/base/xxh3.h"

#include <bit>

#include "cc/base/endian.h"

namespace pagemill {
namespace {

__extension__ using Uint128 = unsigned __int128;

constexpr uint64_t kPrime32_1 = 0x9E3779B1u;
constexpr uint64_t kPrime32_2 = 0x85EBCA77u;
constexpr uint64_t kPrime32_3 = 0xC2B2AE3Du;
constexpr uint64_t kPrime64_1 = 0x9E3779B185EBCA87u;
constexpr uint64_t kPrime64_2 = 0xC2B2AE3D27D4EB4Fu;
constexpr uint64_t kPrime64_3 = 0x165667B19E3779F9u;
constexpr uint64_t kPrime64_4 = 0x85EBCA77C2B2AE63u;
constexpr uint64_t kPrime64_5 = 0x27D4EB2F165667C5u;
constexpr uint64_t kPrimeMix1 = 0x165667919E3779F9u;
constexpr uint64_t kPrimeMix2 = 0x9FB21C651E98DF25u;

constexpr size_t kSecretSize = 192;
constexpr size_t kStripeSize = 64;
constexpr size_t kStripesPerBlock = (kSecretSize - kStripeSize) / 8;
constexpr size_t kBlockSize = kStripesPerBlock * kStripeSize;

// The algorithm's default secret.
constexpr uint8_t kSecret[kSecretSize] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

uint64_t Secret64(size_t offset) { return LoadLittle64(kSecret + offset); }
uint32_t Secret32(size_t offset) { return LoadLittle32(kSecret + offset); }

Digest128 Multiply(uint64_t a, uint64_t b) {
  const Uint128 product = static_cast<Uint128>(a) * b;
  return {static_cast<uint64_t>(product), static_cast<uint64_t>(product >> 64)};
}

uint64_t MultiplyAndFold(uint64_t a, uint64_t b) {
  const Digest128 product = Multiply(a, b);
  return product.low ^ product.high;
}

uint64_t Avalanche(uint64_t h) {
  h = (h ^ (h >> 37)) * kPrimeMix1;
  return h ^ (h >> 32);
}

uint64_t Avalanche64(uint64_t h) {
  h = (h ^ (h >> 33)) * kPrime64_2;
  h = (h ^ (h >> 29)) * kPrime64_3;
  return h ^ (h >> 32);
}

Digest128 HashUpTo3(const uint8_t* in, size_t size) {
  if (size == 0) {
    return {Avalanche64(Secret64(64) ^ Secret64(72)), Avalanche64(Secret64(80) ^ Secret64(88))};
  }
  const uint32_t low = (static_cast<uint32_t>(in[0]) << 16) |
                       (static_cast<uint32_t>(in[size / 2]) << 24) | in[size - 1] |
                       (static_cast<uint32_t>(size) << 8);
  const uint32_t high = std::rotl(SwapBytes32(low), 13);
  return {Avalanche64(low ^ static_cast<uint64_t>(Secret32(0) ^ Secret32(4))),
          Avalanche64(high ^ static_cast<uint64_t>(Secret32(8) ^ Secret32(12)))};
}

Digest128 Hash4To8(const uint8_t* in, size_t size) {
  const uint64_t input =
      LoadLittle32(in) + (static_cast<uint64_t>(LoadLittle32(in + size - 4)) << 32);
  Digest128 m = Multiply(input ^ Secret64(16) ^ Secret64(24), kPrime64_1 + (size << 2));
  m.high += m.low << 1;
  m.low ^= m.high >> 3;
  m.low = (m.low ^ (m.low >> 35)) * kPrimeMix2;
  m.low ^= m.low >> 28;
  m.high = Avalanche(m.high);
  return m;
}

Digest128 Hash9To16(const uint8_t* in, size_t size) {
  const uint64_t first = LoadLittle64(in);
  uint64_t last = LoadLittle64(in + size - 8);
  Digest128 m = Multiply(first ^ last ^ Secret64(32) ^ Secret64(40), kPrime64_1);
  m.low += static_cast<uint64_t>(size - 1) << 54;
  last ^= Secret64(48) ^ Secret64(56);
  m.high += last + static_cast<uint32_t>(last) * (kPrime32_2 - 1);
  m.low ^= SwapBytes64(m.high);
  Digest128 h = Multiply(m.low, kPrime64_2);
  h.high += m.high * kPrime64_2;
  return {Avalanche(h.low), Avalanche(h.high)};
}

uint64_t Mix16(const uint8_t* in, size_t secret) {
  return MultiplyAndFold(LoadLittle64(in) ^ Secret64(secret),
                         LoadLittle64(in + 8) ^ Secret64(secret + 8));
}

void Mix32(const uint8_t* in1, const uint8_t* in2, size_t secret, Digest128* acc) {
  acc->low = (acc->low + Mix16(in1, secret)) ^ (LoadLittle64(in2) + LoadLittle64(in2 + 8));
  acc->high = (acc->high + Mix16(in2, secret + 16)) ^ (LoadLittle64(in1) + LoadLittle64(in1 + 8));
}

Digest128 FinishMedium(const Digest128& acc, size_t size) {
  const uint64_t low = acc.low + acc.high;
  const uint64_t high = acc.low * kPrime64_1 + acc.high * kPrime64_4 + size * kPrime64_2;
  return {Avalanche(low), 0 - Avalanche(high)};
}

Digest128 Hash17To128(const uint8_t* in, size_t size) {
  Digest128 acc{size * kPrime64_1, 0};
  if (size > 96) Mix32(in + 48, in + size - 64, 96, &acc);
  if (size > 64) Mix32(in + 32, in + size - 48, 64, &acc);
  if (size > 32) Mix32(in + 16, in + size - 32, 32, &acc);
  Mix32(in, in + size - 16, 0, &acc);
  return FinishMedium(acc, size);
}

Digest128 Hash129To240(const uint8_t* in, size_t size) {
  Digest128 acc{size * kPrime64_1, 0};
  for (size_t i = 0; i < 128; i += 32) Mix32(in + i, in + i + 16, i, &acc);
  acc = {Avalanche(acc.low), Avalanche(acc.high)};
  for (size_t i = 128; i + 32 <= size; i += 32) Mix32(in + i, in + i + 16, i - 125, &acc);
  Mix32(in + size - 16, in + size - 32, 103, &acc);
  return FinishMedium(acc, size);
}

void AccumulateStripe(const uint8_t* in, size_t secret, uint64_t acc[8]) {
  for (size_t i = 0; i < 8; ++i) {
    const uint64_t data = LoadLittle64(in + 8 * i);
    const uint64_t key = data ^ Secret64(secret + 8 * i);
    acc[i ^ 1] += data;
    acc[i] += (key & 0xFFFFFFFFu) * (key >> 32);
  }
}

uint64_t MergeAccumulators(const uint64_t acc[8], size_t secret, uint64_t start) {
  for (size_t i = 0; i < 4; ++i) {
    start += MultiplyAndFold(acc[2 * i] ^ Secret64(secret + 16 * i),
                             acc[2 * i + 1] ^ Secret64(secret + 16 * i + 8));
  }
  return Avalanche(start);
}

Digest128 HashLong(const uint8_t* in, size_t size) {
  uint64_t acc[8] = {kPrime32_3, kPrime64_1, kPrime64_2, kPrime64_3,
                     kPrime64_4, kPrime32_2, kPrime64_5, kPrime32_1};
  const size_t num_blocks = (size - 1) / kBlockSize;
  for (size_t b = 0; b < num_blocks; ++b) {
    for (size_t s = 0; s < kStripesPerBlock; ++s) {
      AccumulateStripe(in + b * kBlockSize + s * kStripeSize, 8 * s, acc);
    }
    for (size_t i = 0; i < 8; ++i) {
      acc[i] ^= (acc[i] >> 47) ^ Secret64(kSecretSize - kStripeSize + 8 * i);
      acc[i] *= kPrime32_1;
    }
  }
  const size_t rest = num_blocks * kBlockSize;
  const size_t num_stripes = (size - 1 - rest) / kStripeSize;
  for (size_t s = 0; s < num_stripes; ++s)
    AccumulateStripe(in + rest + s * kStripeSize, 8 * s, acc);
  AccumulateStripe(in + size - kStripeSize, kSecretSize - kStripeSize - 7, acc);
  return {MergeAccumulators(acc, 11, size * kPrime64_1),
          MergeAccumulators(acc, kSecretSize - kStripeSize - 11, ~(size * kPrime64_2))};
}

}  // namespace

Digest128 Xxh3_128(const void* data, size_t size) {
  const auto* in = static_cast<const uint8_t*>(data);
  if (size <= 3) return HashUpTo3(in, size);
  if (size <= 8) return Hash4To8(in, size);
  if (size <= 16) return Hash9To16(in, size);
  if (size <= 128) return Hash17To128(in, size);
  if (size <= 240) return Hash129To240(in, size);
  return HashLong(in, size);
}

}  // namespace pagemill
