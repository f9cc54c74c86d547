// File: cc/comm/tcp/testing/free_port.h
// An address of this machine where nothing listens, for tests.
#ifndef PAGEMILL_CC_COMM_TCP_TESTING_FREE_PORT_H_
#define PAGEMILL_CC_COMM_TCP_TESTING_FREE_PORT_H_

#include "cc/net/net_address.h"
#include "cc/net/tcp_socket.h"

namespace pagemill::comm::testing {

inline net::NetAddress FreePort() {
  return *net::TcpSocket::Listen(*net::NetAddress::Parse("127.0.0.1:0"))->address();
}

}  // namespace pagemill::comm::testing

#endif  // PAGEMILL_CC_COMM_TCP_TESTING_FREE_PORT_H_
