// File: cc/engine/output_event.h
// A descriptor that is readable while something is set: how an event loop (epoll, asyncio) learns
// that outputs wait. An eventfd on Linux; on systems without one fd() is -1 and the rest does
// nothing.
//
// Thread safety: the caller serialises Set() and Clear().
#ifndef PAGEMILL_CC_ENGINE_OUTPUT_EVENT_H_
#define PAGEMILL_CC_ENGINE_OUTPUT_EVENT_H_

namespace pagemill::engine {

class OutputEvent {
 public:
  OutputEvent();
  ~OutputEvent();
  OutputEvent(const OutputEvent&) = delete;
  OutputEvent& operator=(const OutputEvent&) = delete;

  int fd() const { return fd_; }
  void Set();    // readable from now on
  void Clear();  // not readable any more

 private:
  int fd_ = -1;
};

}  // namespace pagemill::engine

#endif  // PAGEMILL_CC_ENGINE_OUTPUT_EVENT_H_
