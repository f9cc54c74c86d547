// File: cc/engine/output_codec.h
// Outputs as bytes, for a client in another process. A batch is the number of outputs, and of each
// its id, a mask of the fields that are not empty, and these, in the order of
// RequestOutput::Visit(): an output of one token takes about 10 bytes and 50 ns on each side. The
// same on every architecture.
//
//   const std::string bytes = EncodeOutputs(client->Poll());
//   PAGEMILL_ASSIGN_OR_RETURN(std::vector<RequestOutput> outputs, DecodeOutputs(bytes));
//
// Names do not travel: both processes have the same version of Pagemill, which they find out by
// comparing OutputSchema() before the first batch.
//
// Integers are LEB128 varints (zigzag if signed), floats and doubles are little-endian IEEE 754,
// texts and lists begin with their size. Decoding checks everything: bytes that EncodeOutputs()
// cannot have made are kInvalidArgument, and never take more memory than 256 times their number.
#ifndef PAGEMILL_CC_ENGINE_OUTPUT_CODEC_H_
#define PAGEMILL_CC_ENGINE_OUTPUT_CODEC_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cc/base/status.h"
#include "cc/engine/request_output.h"

namespace pagemill::engine {

std::string EncodeOutputs(std::span<const RequestOutput> outputs);
StatusOr<std::vector<RequestOutput>> DecodeOutputs(std::string_view bytes);

// The format and the fields that travel, in words; equal in processes that understand each other.
std::string OutputSchema();

}  // namespace pagemill::engine

#endif  // PAGEMILL_CC_ENGINE_OUTPUT_CODEC_H_
