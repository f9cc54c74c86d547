// Vectors of the digests, made with the Python packages xxhash 3 and hashlib over
// PseudoRandomBytes().
#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/endian.h"
#include "cc/base/sha256.h"
#include "cc/base/xxh3.h"
#include "gtest/gtest.h"

namespace pagemill {
namespace {

// The high bytes of the linear congruential generator x = 1664525 x + 1013904223 (mod 2^32), x0 =
// 0.
std::vector<uint8_t> PseudoRandomBytes(size_t size) {
  std::vector<uint8_t> bytes(size);
  uint32_t x = 0;
  for (uint8_t& byte : bytes) {
    x = x * 1664525u + 1013904223u;
    byte = static_cast<uint8_t>(x >> 24);
  }
  return bytes;
}

struct Xxh3Vector {
  size_t size;
  uint64_t low;
  uint64_t high;
};

// Every length class of the algorithm and its borders.
constexpr Xxh3Vector kXxh3Vectors[] = {
    {0, 0x6001c324468d497f, 0x99aa06d3014798d8},    {1, 0x429e81bc6744101c, 0xbeff62be44bc9be4},
    {2, 0x57d7b9963cd30631, 0x844dcce437b8cce2},    {3, 0x33fa91c11a67d893, 0xec96faa072b624b1},
    {4, 0xbe9d14d23b5067d3, 0x97443f14bf30da12},    {7, 0xccc4fc3c8a76d238, 0x3aa4aef1f07e1adc},
    {8, 0x3635d8f75a9201b1, 0x41766cccf9e02eec},    {9, 0x2c2bca33f8065b17, 0xfc6bbcf36fa0c63e},
    {13, 0x37faf1e0e3585188, 0x77f9af7d618eaaa7},   {16, 0xab5bba8d3d7348a4, 0x4e6ddd9c84052cfd},
    {17, 0x366d197abf0c2c62, 0x8a2d97a1206d24fa},   {32, 0x6262392c68e98f47, 0x17227014c4008647},
    {33, 0x5f1dc394899b3325, 0x78a8279f8e223eed},   {64, 0xf8f793c3df828a8c, 0xbb9aeaa6799d95df},
    {65, 0x6b97aa3dec9f8558, 0x2e6286491d60633e},   {96, 0x24106c9f65d2fea1, 0xa8085289a376fdcb},
    {97, 0xf17415d3415f8a43, 0xd5bf8e65bf3aaa26},   {100, 0xb2bf7c0c13edfe6a, 0xb5f8df06e4c75b3e},
    {128, 0x08f0e9927f9a4920, 0x2b34d0597cc2b309},  {129, 0x066436d3b6ad2d75, 0x03a1829651965e55},
    {160, 0x115d852d17ad2074, 0x077e04d22e7fff53},  {161, 0xb17d0c738f489e07, 0x04f7c71953e67ab1},
    {191, 0xf12559b2376d57ce, 0xba5454e295efbbcd},  {192, 0x0bbeb1ce552cb3f2, 0x5e98bf92be3e6e17},
    {200, 0x229ed6a24cd5d459, 0x4f683275c29a7e5a},  {240, 0xbfdb371ba6cbdc79, 0xb960c0543427bc21},
    {241, 0xcba21f3b71b2ad77, 0x16557ebef29390df},  {256, 0x532e8e874cd4f650, 0xbb22248b292d3548},
    {320, 0x05175c3a2646caaf, 0x0de2e8975dc23165},  {1023, 0x276fc041c47bed03, 0x9fa8771723e2df6c},
    {1024, 0xf98d4758a8505603, 0xac66e17d99c8bf58}, {1025, 0x23fac61768279f9c, 0x4b4c799e50f841be},
    {1088, 0xc087985679d707d1, 0xf398de76d6cc4399}, {1089, 0xb8ab2a97b1928458, 0x4ffc50f380f64ae5},
    {2048, 0xb6b297d2c4d96221, 0xbfeb72c28b8c255c}, {2049, 0x456cf4c9449b33f5, 0xd001935ddc95a500},
    {4095, 0xcd6e24129691e2b1, 0x8fb9f3f0ebd1294c}, {10000, 0x4b0bdc4ab858e4d8, 0x9d5e590cec7f5717},
};

TEST(Xxh3, EqualsReferenceVectors) {
  for (const Xxh3Vector& v : kXxh3Vectors) {
    const std::vector<uint8_t> bytes = PseudoRandomBytes(v.size);
    EXPECT_EQ(Xxh3_128(bytes.data(), bytes.size()), (Digest128{v.low, v.high})) << v.size;
  }
}

TEST(Xxh3, DoesNotDependOnAlignment) {
  std::vector<uint8_t> bytes = PseudoRandomBytes(301);
  const Digest128 aligned = Xxh3_128(bytes.data(), 300);
  std::vector<uint8_t> shifted(bytes.size() + 1);
  for (size_t i = 0; i < 300; ++i) shifted[i + 1] = bytes[i];
  EXPECT_EQ(Xxh3_128(shifted.data() + 1, 300), aligned);
  EXPECT_NE(Xxh3_128(bytes.data(), 301), aligned);
}

std::string Hex(const Digest256& digest) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (uint8_t byte : digest) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

struct Sha256Vector {
  size_t size;
  const char* hex;
};

// Around the sizes where the padding needs a second chunk.
constexpr Sha256Vector kSha256Vectors[] = {
    {0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
    {1, "dabd3aff769f07eb2965401eb029974ebba3407afd02b26ddb564ea5f8efae72"},
    {55, "6d2f3ce508c27fcfd86fb61bbd38d060d562c2d167770e739eea467e9e4ecc74"},
    {56, "dae35d72ed67374fe7803042b711d7eb90acfaf5494b54b448e2c44dba084684"},
    {63, "ef663c0dd7fee4b8c3c4dbdd6c23383594b92ecece5682f695e132caf433fb5c"},
    {64, "a71b7c7df3ae3351a463f63cde7c72b07f2e94bc8fd29d6191b6c05c41fefbaf"},
    {65, "2f7fe2a6f4a603cd6ee3dff7f86fcab1ebd4e532ede08c4c8974f4646e408e10"},
    {119, "32dc7cc23ff3dfcac18bd4c6abf95fac2f1752546b09a5409d0514d2251a2b0c"},
    {120, "1ae9c19d12668d6105adbf702930ddd3c546881e1cf8b9836801c1af9892d041"},
    {128, "2e7386159925c5f0613ec9e03cc8323721778b6cb7c32180b037171eaedcd524"},
    {1000, "bca9340f1ffe81672e9dc2ed572419a20b1f7fa3e3d318086bb0984c1aa01fa6"},
};

TEST(Sha256, EqualsReferenceVectors) {
  for (const Sha256Vector& v : kSha256Vectors) {
    const std::vector<uint8_t> bytes = PseudoRandomBytes(v.size);
    EXPECT_EQ(Hex(Sha256(bytes.data(), bytes.size())), v.hex) << v.size;
  }
}

TEST(Endian, LoadsAndStoresInTheStatedOrder) {
  const uint8_t bytes[9] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_EQ(LoadLittle32(bytes + 1), 0x04030201u);
  EXPECT_EQ(LoadLittle64(bytes + 1), 0x0807060504030201u);
  EXPECT_EQ(LoadBig32(bytes + 1), 0x01020304u);
  uint8_t out[8];
  StoreLittle64(0x0807060504030201u, out);
  EXPECT_EQ(out[0], 1);
  EXPECT_EQ(out[7], 8);
  StoreBig64(0x0807060504030201u, out);
  EXPECT_EQ(out[0], 8);
  StoreLittle32(0x04030201u, out);
  EXPECT_EQ(out[0], 1);
  StoreBig32(0x04030201u, out);
  EXPECT_EQ(out[0], 4);
}

}  // namespace
}  // namespace pagemill
