// File: cc/ops/kv_write/key_layout.h
// How keys lie in a block of a paged KV cache: the attribute `keys_in_rows` of the ops that write
// and read it. 0, the default: [kv_heads, head_dim, block_size], which kernels of vectors of keys
// read. 1: [kv_heads, block_size, head_dim], as values always do, which kernels of GPU libraries
// require. All ops of a cache have the same (cc/program/kv/key_layout.h chooses).
//
//   const KeyStrides key = KeyStridesOf(KeysInRows(call), head_dim, block_size);
//   const float k0 = block[kv_head * head_dim * block_size + offset * key.token];
#ifndef PAGEMILL_CC_OPS_KV_WRITE_KEY_LAYOUT_H_
#define PAGEMILL_CC_OPS_KV_WRITE_KEY_LAYOUT_H_

#include <cstdint>

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"
#include "cc/ops/operand_check.h"

namespace pagemill::ops {

inline constexpr char kKeysInRows[] = "keys_in_rows";

// Elements from one element of a key to the next, and from one token's key to the next.
struct KeyStrides {
  int64_t element = 1, token = 1;
};

constexpr KeyStrides KeyStridesOf(bool keys_in_rows, int64_t head_dim, int64_t block_size) {
  return keys_in_rows ? KeyStrides{.element = 1, .token = head_dim}
                      : KeyStrides{.element = block_size, .token = 1};
}

inline bool KeysInRows(const OpCall& call) {
  return call.attributes->GetInt(kKeysInRows, 0) != 0;
}

inline void CheckKeyLayout(OperandCheck& check) {
  check.IntegerAttribute(kKeysInRows, /*fallback=*/0, 0, 1);
}

// `Kernel::supports` of kernels that take the calls of `kSupports` if keys do not lie in rows.
template <bool (*kSupports)(const device::Capabilities&, const OpCall&)>
bool WithKeysInColumns(const device::Capabilities& caps, const OpCall& call) {
  return !KeysInRows(call) && kSupports(caps, call);
}

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_KV_WRITE_KEY_LAYOUT_H_
