#include "cc/net/net_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <charconv>
#include <cstring>
#include <utility>

namespace pagemill::net {
namespace {

// "::ffff:255.255.255.255" and the like; longer texts are no addresses.
constexpr size_t kMaxHostChars = INET6_ADDRSTRLEN - 1;

Status NotAnAddress(std::string_view text) {
  return InvalidArgument("\"" + std::string(text.substr(0, 80)) +
                         "\" is not an IP address and a port, such as 10.0.0.7:7000 or "
                         "[fd00::7]:7000");
}

}  // namespace

StatusOr<NetAddress> NetAddress::Parse(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == text.npos) return NotAnAddress(text);
  std::string_view host = text.substr(0, colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  // "fd00::7:7000" is an address without a port, too.
  if (!bracketed && host.find(':') != host.npos) return NotAnAddress(text);
  StatusOr<NetAddress> made = Make(host, text.substr(colon + 1));
  return made.ok() ? std::move(made) : NotAnAddress(text);
}

StatusOr<NetAddress> NetAddress::Make(std::string_view host, std::string_view port) {
  uint16_t number = 0;
  const auto parsed = std::from_chars(port.data(), port.data() + port.size(), number);
  const bool is_port = parsed.ec == std::errc() && parsed.ptr == port.data() + port.size();
  if (!is_port || host.size() > kMaxHostChars || host.find('\0') != host.npos) {
    return NotAnAddress(std::string(host.substr(0, 40)) + ":" + std::string(port.substr(0, 40)));
  }
  const std::string text(host);
  char canonical[INET6_ADDRSTRLEN];
  unsigned char bytes[sizeof(in6_addr)];
  for (const int family : {AF_INET, AF_INET6}) {
    if (inet_pton(family, text.c_str(), bytes) != 1) continue;
    inet_ntop(family, bytes, canonical, sizeof(canonical));
    return NetAddress(canonical, number);
  }
  return NotAnAddress(text + ":" + std::string(port));
}

StatusOr<NetAddress> NetAddress::FromSocket(const sockaddr_storage& bound) {
  char host[INET6_ADDRSTRLEN];
  if (bound.ss_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, &bound, sizeof(v4));
    inet_ntop(AF_INET, &v4.sin_addr, host, sizeof(host));
    return NetAddress(host, ntohs(v4.sin_port));
  }
  if (bound.ss_family != AF_INET6) return Internal("this socket is not of TCP over IP");
  sockaddr_in6 v6;
  std::memcpy(&v6, &bound, sizeof(v6));
  inet_ntop(AF_INET6, &v6.sin6_addr, host, sizeof(host));
  return NetAddress(host, ntohs(v6.sin6_port));
}

std::string NetAddress::ToString() const {
  const std::string port = ":" + std::to_string(port_);
  return is_v6() ? "[" + host_ + "]" + port : host_ + port;
}

socklen_t NetAddress::ToSocket(sockaddr_storage* to) const {
  std::memset(to, 0, sizeof(*to));
  if (!is_v6()) {
    sockaddr_in v4 = {};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port_);
    inet_pton(AF_INET, host_.c_str(), &v4.sin_addr);
    std::memcpy(to, &v4, sizeof(v4));
    return sizeof(v4);
  }
  sockaddr_in6 v6 = {};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port_);
  inet_pton(AF_INET6, host_.c_str(), &v6.sin6_addr);
  std::memcpy(to, &v6, sizeof(v6));
  return sizeof(v6);
}

}  // namespace pagemill::net
