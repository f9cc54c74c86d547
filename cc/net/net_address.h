// File: cc/net/net_address.h
// An IP address and a TCP port: "10.0.0.7:7000" or "[fd00::7]:7000". Names are not resolved: that
// could block for seconds, and give another address than the one that the operator allowed.
//
//   PAGEMILL_ASSIGN_OR_RETURN(NetAddress address, NetAddress::Parse("10.0.0.7:7000"));
#ifndef PAGEMILL_CC_NET_NET_ADDRESS_H_
#define PAGEMILL_CC_NET_NET_ADDRESS_H_

#include <sys/socket.h>

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "cc/base/status.h"

namespace pagemill::net {

class NetAddress {
 public:
  // Of any text; kInvalidArgument with the text, quoted, if it is no address.
  static StatusOr<NetAddress> Parse(std::string_view text);
  // `host` without brackets.
  static StatusOr<NetAddress> Make(std::string_view host, std::string_view port);
  // What getsockname() gave; kInternal if it is not of TCP over IP.
  static StatusOr<NetAddress> FromSocket(const sockaddr_storage& bound);

  // In one spelling, without brackets.
  const std::string& host() const { return host_; }
  uint16_t port() const { return port_; }
  // True for 0.0.0.0 and [::], to which no peer can connect.
  bool is_wildcard() const { return host_ == "0.0.0.0" || host_ == "::"; }
  // True for 127.0.0.0/8 and ::1, which only this machine reaches.
  bool is_loopback() const { return host_.starts_with("127.") || host_ == "::1"; }
  std::string ToString() const;
  int family() const { return is_v6() ? AF_INET6 : AF_INET; }
  // Fills `to`; returns its length.
  socklen_t ToSocket(sockaddr_storage* to) const;

  friend auto operator<=>(const NetAddress&, const NetAddress&) = default;

 private:
  NetAddress(std::string host, uint16_t port) : host_(std::move(host)), port_(port) {}
  bool is_v6() const { return host_.find(':') != std::string::npos; }

  std::string host_;
  uint16_t port_;
};

}  // namespace pagemill::net

#endif  // PAGEMILL_CC_NET_NET_ADDRESS_H_
