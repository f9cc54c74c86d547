#include "cc/base/sha256.h"

#include <bit>
#include <cstring>

#include "cc/base/endian.h"

namespace pagemill {
namespace {

constexpr size_t kChunkSize = 64;

// First 32 bits of the fractional parts of the square roots of the first 8 primes.
constexpr uint32_t kInitialState[8] = {
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
};

// First 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr uint32_t kRoundConstants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

void Compress(const uint8_t* chunk, uint32_t state[8]) {
  uint32_t w[64];
  for (int i = 0; i < 16; ++i) w[i] = LoadBig32(chunk + 4 * i);
  for (int i = 16; i < 64; ++i) {
    const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  uint32_t s[8];
  std::memcpy(s, state, sizeof(s));
  for (int i = 0; i < 64; ++i) {
    const uint32_t a = s[0], e = s[4];
    const uint32_t choice = (e & s[5]) ^ (~e & s[6]);
    const uint32_t majority = (a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]);
    const uint32_t sum1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t sum0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t = s[7] + sum1 + choice + kRoundConstants[i] + w[i];
    for (int j = 7; j > 0; --j) s[j] = s[j - 1];
    s[4] += t;
    s[0] = t + sum0 + majority;
  }
  for (int i = 0; i < 8; ++i) state[i] += s[i];
}

}  // namespace

Digest256 Sha256(const void* data, size_t size) {
  const auto* in = static_cast<const uint8_t*>(data);
  uint32_t state[8];
  std::memcpy(state, kInitialState, sizeof(state));
  size_t done = 0;
  for (; size - done >= kChunkSize; done += kChunkSize) Compress(in + done, state);

  // The rest, a one bit, zeros, and the length in bits: one chunk, or two if it does not fit.
  uint8_t tail[2 * kChunkSize] = {};
  const size_t rest = size - done;
  if (rest > 0) std::memcpy(tail, in + done, rest);
  tail[rest] = 0x80;
  const size_t tail_size = rest + 1 + 8 <= kChunkSize ? kChunkSize : 2 * kChunkSize;
  StoreBig64(static_cast<uint64_t>(size) * 8, tail + tail_size - 8);
  for (size_t at = 0; at < tail_size; at += kChunkSize) Compress(tail + at, state);

  Digest256 digest;
  for (int i = 0; i < 8; ++i) StoreBig32(state[i], digest.data() + 4 * i);
  return digest;
}

}  // namespace pagemill
