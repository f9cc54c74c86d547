// File: cc/kv_transfer/tcp/wakeup.h
// Wakes a thread that polls sockets.
//
//   wakeup.Notify();                                         // any thread
//   poll(...wakeup.fd() for POLLIN...); wakeup.Clear();      // the thread
#ifndef PAGEMILL_CC_KV_TRANSFER_TCP_WAKEUP_H_
#define PAGEMILL_CC_KV_TRANSFER_TCP_WAKEUP_H_

namespace pagemill::kv_transfer {

class Wakeup {
 public:
  Wakeup();
  ~Wakeup();
  Wakeup(const Wakeup&) = delete;
  Wakeup& operator=(const Wakeup&) = delete;

  // Readable from a Notify() to the next Clear(); -1 if the system has no more descriptors.
  int fd() const { return fd_; }
  void Notify() const;
  void Clear() const;

 private:
  const int fd_;
};

}  // namespace pagemill::kv_transfer

#endif  // PAGEMILL_CC_KV_TRANSFER_TCP_WAKEUP_H_
