// File: cc/program/device/testing/device_parity.h
// Runs a program on the CPU and on a device, on the same steps: prompts of several lengths, then
// decoding, with two steps in flight. On the device, kernels of the first steps of their sizes are
// enqueued one by one, and in a second run all steps are replayed from graphs. Test code only.
//
//   const Status status = CheckParity(text, {.target = target, .device = device,
//                                            .num_replays = [&] { return device.num_replays(); }});
#ifndef PAGEMILL_CC_PROGRAM_DEVICE_TESTING_DEVICE_PARITY_H_
#define PAGEMILL_CC_PROGRAM_DEVICE_TESTING_DEVICE_PARITY_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/device/device.h"
#include "cc/program/executor_options.h"
#include "cc/program/kernel_selection.h"
#include "cc/tensor/dtype.h"

namespace pagemill::program::testing {

struct DeviceUnderTest {
  Target target;
  device::Device& device;
  std::function<int64_t()> num_replays;  // of graphs, so far
  bool deterministic = false;            // ExecutorOptions'; of CheckLogitsOfRanks() alone
};

// Options of both executors.
ExecutorOptions ParityOptions();

// The CPU has the type of activations of the device, and the kernels that every CPU has. All logits
// have the same bits.
Status CheckEqualLogits(const std::string& text, DType act, const DeviceUnderTest& under_test);

// The CPU computes in f32 with the best kernels of this machine that do not round activations.
// Logits differ by at most `tolerance` of the largest; with f32 activations, caches are f32, too,
// and the largest logit of each row is that of the same token. Replayed from graphs, they have the
// same bits, unless a kernel's depend on the batch: then they differ from the CPU's as little.
// `max_far_rows` rows of logits may differ by up to 10 times as much: if activations are rounded, a
// router may choose another expert for a token.
Status CheckCloseLogits(const std::string& text, DType act, double tolerance,
                        const DeviceUnderTest& under_test, int64_t max_far_rows = 0);

// `parts` is `text` divided among ranks, each of which is a thread with an executor of its own on
// the device: all have the same bits, within `tolerance` of the CPU's logits of `text`, and the
// same tokens. In f32.
Status CheckLogitsOfRanks(const std::string& text, const std::vector<std::string>& parts,
                          double tolerance, const DeviceUnderTest& under_test);

}  // namespace pagemill::program::testing

#endif  // PAGEMILL_CC_PROGRAM_DEVICE_TESTING_DEVICE_PARITY_H_
