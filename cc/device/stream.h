// File: cc/device/stream.h
// A queue of work that a device executes in order while the host continues.
//
//   PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, device.NewStream());
//   std::unique_ptr<Event> done = device.NewEvent();
//   stream->CopyToDevice(x.data(), input);
//   kernel.run(call, context);                       // enqueues on context.stream (cc/ops/op.h)
//   stream->CopyToHost(result, y.data());
//   stream->Record(*done);
//   PAGEMILL_RETURN_IF_ERROR(done->Synchronize());         // `result` is complete
//
// A graph is work that was recorded instead of executed, with the addresses at that time, and can
// be enqueued as one unit:
//
//   stream->BeginCapture();
//   kernel.run(call, context);
//   PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<Graph> graph, stream->EndCapture());
//   stream->Replay(*graph);
//
// Kernels of collectives exchange data with those of other ranks, whose streams have joined:
//
//   PAGEMILL_RETURN_IF_ERROR(stream->Join(ranks));         // on every rank
//   all_reduce.run(call, context);                   // on every rank, in the same order
//
// The next Synchronize() of an event, and all later ones, report errors of enqueued work. Thread
// safety: a stream and its events are used by one thread.
#ifndef PAGEMILL_CC_DEVICE_STREAM_H_
#define PAGEMILL_CC_DEVICE_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "cc/base/status.h"

namespace pagemill::device {

// A point in a stream's work.
class Event {
 public:
  virtual ~Event() = default;
  // Waits until all work before the last recorded point is done.
  virtual Status Synchronize() = 0;
};

// Recorded work. Stores addresses, not memory: the memory must exist at every replay.
class Graph {
 public:
  virtual ~Graph() = default;
};

// A rank of a group whose devices exchange data, and how its host reaches those of the others.
struct Ranks {
  int32_t rank = 0;
  int32_t num_ranks = 1;
  // A call of all ranks with equally many bytes: `all`, num_ranks times as large, receives what
  // each rank passed, in rank order.
  std::function<Status(std::span<const std::byte> own, std::span<std::byte> all)> exchange;
  // The device's memory that other ranks write to.
  int64_t buffer_bytes = int64_t{16} << 20;
  // How long a kernel waits for those of other ranks.
  int32_t limit_ms = 30'000;
};

class Stream {
 public:
  // Waits for its work.
  virtual ~Stream() = default;

  // The host's bytes must not change until the copy is done. If they are in memory of
  // Device::AllocateHost(), the host does not wait for the copy.
  virtual void CopyToDevice(std::byte* to, std::span<const std::byte> from) = 0;
  virtual void CopyToHost(std::span<std::byte> to, const std::byte* from) = 0;
  virtual void Record(Event& event) = 0;

  // Until EndCapture(), work is recorded and not executed. Events must not be recorded meanwhile.
  virtual void BeginCapture() = 0;
  // kResourceExhausted if the device has no memory for the graph, which is no error of the stream.
  virtual StatusOr<std::unique_ptr<Graph>> EndCapture() = 0;
  // `graph` must live until its work is done.
  virtual void Replay(const Graph& graph) = 0;

  // A call of all ranks, before any work is enqueued. kUnavailable is the next error of the stream
  // if another rank does not come to a collective in time. kFailedPrecondition: the ranks' devices
  // do not reach each other's memory.
  virtual Status Join(const Ranks& ranks) {
    (void)ranks;
    return Unimplemented(
        "this device exchanges no data with other ranks: use --tensor-parallel-size 1");
  }
};

}  // namespace pagemill::device

#endif  // PAGEMILL_CC_DEVICE_STREAM_H_
