// File: cuda/emulation/fiber.h
// A stack of its own that one host thread switches to and back from, and that other fibers of this
// thread switch to: about 10 ns a switch.
//
//   Fiber a, b;
//   a.Start([&] { first(); a.SwitchTo(b); third(); });
//   b.Start([&] { second(); b.Suspend(); });
//   a.Resume();  // runs first() and second(), until b suspends
//   a.Resume();  // runs third(); `a` is finished
//
// A fiber that never finishes may be started again: what is on its stack is dropped without
// destructors. Not thread-safe. x86-64 only. AddressSanitizer knows of the switches.
#ifndef PAGEMILL_CUDA_EMULATION_FIBER_H_
#define PAGEMILL_CUDA_EMULATION_FIBER_H_

#include <cstddef>
#include <functional>
#include <memory>

namespace pagemill::gpu::emulation {

class Fiber {
 public:
  // Not a power of two, so that the ends of stacks that follow each other meet in no cache set.
  static constexpr size_t kStackBytes = (size_t{64} << 10) + 320;

  Fiber();
  Fiber(const Fiber&) = delete;  // its address is on its stack
  Fiber& operator=(const Fiber&) = delete;

  // `body` must outlive the fiber's run.
  void Start(const std::function<void()>& body);
  // Called by the host thread, on a fiber that is started and not finished. Returns when a fiber
  // suspends or finishes.
  void Resume();
  // Called on the fiber: returns when it is resumed or switched to.
  void Suspend();
  // Likewise, and `other` goes on: it is started and not finished.
  void SwitchTo(Fiber& other);

  bool finished() const { return finished_; }

  // What is kept of a stack that does not run.
  struct Stack {
    void* pointer = nullptr;
    // For AddressSanitizer.
    void* fake_stack = nullptr;
    const void* begin = nullptr;
    size_t bytes = 0;
  };

 private:
  static void Entry();

  std::unique_ptr<std::byte[]> memory_;
  const std::function<void()>* body_ = nullptr;
  Stack stack_;
  bool finished_ = false;
};

}  // namespace pagemill::gpu::emulation

#endif  // PAGEMILL_CUDA_EMULATION_FIBER_H_
