// SPDX-License-Identifier: Apache-2.0
#include "host/channel.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"
#include "core/json.h"

namespace msabench {
namespace {

constexpr std::size_t header_bytes = 4;

std::uint32_t read_length(const char* at) {
  std::uint32_t length = 0;
  for (std::size_t i = header_bytes; i-- > 0;) length = length << 8 | static_cast<unsigned char>(at[i]);
  return length;
}

}  // namespace

void channel::set_send_timeout(int seconds) {
  const timeval limit{seconds, 0};
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

bool channel::send(const nlohmann::json& body, std::span<const int> fds) {
  const std::string text = body.dump();
  if (text.size() > max_bytes) throw suite_error(fmt::format("protocol message of {} bytes is too long", text.size()));
  if (fds.size() > max_fds) throw suite_error(fmt::format("protocol message with {} descriptors", fds.size()));
  std::string frame;
  for (std::size_t i = 0; i < header_bytes; ++i) frame += static_cast<char>(text.size() >> (8 * i) & 0xff);
  frame += text;

  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * max_fds)] = {};
  std::size_t sent = 0;
  while (sent < frame.size()) {
    iovec part{frame.data() + sent, frame.size() - sent};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    if (sent == 0 && !fds.empty()) {
      header.msg_control = control;
      header.msg_controllen = CMSG_SPACE(fds.size_bytes());
      cmsghdr* c = CMSG_FIRSTHDR(&header);
      c->cmsg_level = SOL_SOCKET;
      c->cmsg_type = SCM_RIGHTS;
      c->cmsg_len = CMSG_LEN(fds.size_bytes());
      std::memcpy(CMSG_DATA(c), fds.data(), fds.size_bytes());
    }
    const ssize_t n = ::sendmsg(socket_.get(), &header, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    sent += static_cast<std::size_t>(n);
  }
  return true;
}

channel::status channel::receive(message& out, bool wait) {
  for (;;) {
    const status s = next(out);
    if (s != status::nothing) return s;
    if (closed_) return status::closed;
    if (!read_some(wait)) return closed_ ? status::closed : status::nothing;
  }
}

channel::status channel::next(message& out) {
  if (pending_.size() < header_bytes) return status::nothing;
  const std::uint32_t length = read_length(pending_.data());
  if (length > max_bytes) return status::garbage;
  if (pending_.size() < header_bytes + length) return status::nothing;
  const std::string text = pending_.substr(header_bytes, length);
  pending_.erase(0, header_bytes + length);
  // Only one message with descriptors is ever under way, so all that came are its own.
  out.fds = std::exchange(pending_fds_, {});
  try {
    out.body = parse_json("message", text);
  } catch (const usage_error&) {
    return status::garbage;
  }
  return out.body.is_object() ? status::ready : status::garbage;
}

bool channel::read_some(bool wait) {
  char bytes[65536];
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * max_fds)];
  iovec part{bytes, sizeof bytes};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  ssize_t n = 0;
  do {
    n = ::recvmsg(socket_.get(), &header, MSG_CMSG_CLOEXEC | (wait ? 0 : MSG_DONTWAIT));
  } while (n < 0 && errno == EINTR && wait);
  if (n < 0) {
    if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) closed_ = true;
    return false;
  }
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
      pending_fds_.emplace_back(fd);
    }
  }
  closed_ = n == 0;
  pending_.append(bytes, static_cast<std::size_t>(n));
  return n > 0;
}

}  // namespace msabench
