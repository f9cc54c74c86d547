// File: cc/comm/tcp/testing/reserved_port.h
// An address of this machine, for tests whose processes or threads meet there.
#ifndef PAGEMILL_CC_COMM_TCP_TESTING_RESERVED_PORT_H_
#define PAGEMILL_CC_COMM_TCP_TESTING_RESERVED_PORT_H_

#include <sys/socket.h>

#include "cc/base/status.h"
#include "cc/net/net_address.h"

namespace pagemill::comm::testing {

// Connections are refused until a listener is there, with SO_REUSEADDR. The system assigns the port
// to no other socket as long as this process lives, since one that does not listen holds it.
inline net::NetAddress ReservedPort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  sockaddr_storage address = {};
  socklen_t size = net::NetAddress::Parse("127.0.0.1:0")->ToSocket(&address);
  const auto at = reinterpret_cast<sockaddr*>(&address);
  PAGEMILL_CHECK(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0);
  PAGEMILL_CHECK(bind(fd, at, size) == 0);
  PAGEMILL_CHECK(getsockname(fd, at, &size) == 0);
  return *net::NetAddress::FromSocket(address);
}

}  // namespace pagemill::comm::testing

#endif  // PAGEMILL_CC_COMM_TCP_TESTING_RESERVED_PORT_H_
