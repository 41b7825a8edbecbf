// SPDX-License-Identifier: Apache-2.0
// Framing: pieces, descriptors, ends and lies.
#include "host/channel.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <set>
#include <string>
#include <thread>

#include "core/error.h"
#include "core/problem.h"
#include "host/protocol.h"
#include "tests/host/small_case.h"

using namespace msabench;

namespace {

struct ends {
  unique_fd a, b;
  ends() {
    int fds[2];
    ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds);
    a.reset(fds[0]);
    b.reset(fds[1]);
  }
  void write(std::string_view bytes) const {
    ASSERT_EQ(::write(a.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
};

std::string frame(std::string_view text) {
  std::string out(4, 0);
  out[0] = static_cast<char>(text.size());
  return out + std::string(text);
}

}  // namespace

TEST(channel, messages_in_pieces_and_in_one) {
  ends e;
  channel in(std::move(e.b));
  message m;
  const std::string two = frame(R"({"n":1})") + frame(R"({"n":2})");
  e.write(two.substr(0, 6));
  EXPECT_EQ(in.receive(m, false), channel::status::nothing);
  e.write(two.substr(6));
  ASSERT_EQ(in.receive(m, false), channel::status::ready);
  EXPECT_EQ(m.body["n"], 1);
  ASSERT_EQ(in.receive(m, false), channel::status::ready);
  EXPECT_EQ(m.body["n"], 2);
  EXPECT_EQ(in.receive(m, false), channel::status::nothing);
  e.write("\x09");
  e.a.reset();
  EXPECT_EQ(in.receive(m, true), channel::status::closed);
}

TEST(channel, lies_are_garbage) {
  for (const std::string& bytes : {std::string("\xff\xff\xff\xff", 4), frame("nonsense"), frame("[1]"), frame("{}}"),
                                   frame(R"({"a":"\xff"})"), frame(std::string(100, '['))}) {
    ends e;
    channel in(std::move(e.b));
    e.write(bytes);
    message m;
    EXPECT_EQ(in.receive(m, true), channel::status::garbage) << bytes;
  }
}

TEST(channel, a_large_message_with_descriptors_arrives_whole) {
  ends e;
  channel out(std::move(e.a)), in(std::move(e.b));
  // Larger than a socket buffer, so both ends have to move.
  const std::string text(3 << 20, 'x');
  const unique_fd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int fds[] = {file.get(), file.get()};
  std::thread sender([&] { EXPECT_TRUE(out.send({{"text", text}}, fds)); });
  message m;
  EXPECT_EQ(in.receive(m, true), channel::status::ready);
  sender.join();
  EXPECT_EQ(m.body["text"].get<std::string>().size(), text.size());
  ASSERT_EQ(m.fds.size(), 2u);
  EXPECT_NE(::fcntl(m.fds[1].get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(channel, sending_to_nobody_fails_without_a_signal) {
  ends e;
  channel out(std::move(e.a));
  e.b.reset();
  EXPECT_FALSE(out.send({{"type", "next"}}));
  EXPECT_THROW(out.send({{"text", std::string(channel::max_bytes, 'x')}}), suite_error);
}

TEST(protocol, observations_survive_the_way) {
  observation seen;
  seen.result = outcome::error_status;
  seen.entry = "workspace";
  seen.status = 3;
  seen.message = "workspace 1: why; what";
  seen.workspace_bytes = 1234567890123;
  seen.remarks = {"a", "b"};
  seen.violations = {{violation::kind::beyond_t, slot::scores, "run", "rows"},
                     {violation::kind::memory_limit, std::nullopt, "run", "more"}};
  seen.answered = capability{};
  seen.answered->declared.operand = bf16;
  seen.answered->declared.exp_rel_error = 0x1p-21f;
  seen.answered->delivers.lse = lse_form::base2;
  const observation back = protocol::decode_observation(protocol::encode("done", seen));
  EXPECT_EQ(back.result, seen.result);
  EXPECT_EQ(back.entry, seen.entry);
  EXPECT_EQ(back.status, seen.status);
  EXPECT_EQ(back.message, seen.message);
  EXPECT_EQ(back.workspace_bytes, seen.workspace_bytes);
  EXPECT_EQ(back.remarks, seen.remarks);
  ASSERT_EQ(back.violations.size(), 2u);
  EXPECT_EQ(back.violations[0].what, violation::kind::beyond_t);
  EXPECT_EQ(back.violations[0].where, slot::scores);
  EXPECT_EQ(back.violations[1].where, std::nullopt);
  ASSERT_TRUE(back.answered);
  EXPECT_EQ(back.answered->declared, seen.answered->declared);
  EXPECT_EQ(back.answered->delivers, seen.answered->delivers);
}

// What a device's image is made of: all that the host wrote, and no memory that nobody uses.
TEST(protocol, contents_of_regions_are_told_where_a_device_needs_them) {
  const case_spec c = parse_case(host_test::attend_name);
  const input_set set = make_inputs(c, make_problem(c));
  const auto regions_of = [&](bool contents) {
    const protocol::execute_message sent = protocol::encode_execute(set, nullptr, {}, contents);
    message m;
    m.body = sent.body;
    for (const int fd : sent.fds) m.fds.emplace_back(::dup(fd));
    protocol::execute_request r = protocol::decode_execute(m);
    r.move_elsewhere();
    for (std::size_t i = 0; i < r.regions.size(); ++i) {
      EXPECT_EQ(r.bound.regions[i].data, r.regions[i].memory->data()) << "regions move with their memory";
      EXPECT_EQ(r.bound.regions[i].bytes, r.regions[i].memory->bytes());
    }
    return r.bound.regions;
  };
  std::uint64_t told = 0, written = 0;
  for (const memory_region& r : regions_of(false)) EXPECT_TRUE(r.contents.empty());
  for (const memory_region& r : regions_of(true))
    for (const auto& [begin, end] : r.contents) told += end - begin;
  std::set<const shared_region*> seen;
  for (const buffer& b : set.inputs) {
    if (!b.region || !seen.insert(b.region.get()).second) continue;
    for (const extent& e : b.contents)
      if (e.holds == extent::kind::filled || e.holds == extent::kind::poisoned) written += e.end - e.begin;
  }
  for (const buffer& b : set.outputs) written += b.region ? b.region->bytes() : 0;
  EXPECT_EQ(told, written);
}

TEST(protocol, a_type_that_is_no_text_is_no_type) {
  EXPECT_EQ(protocol::type_of({{"type", "next"}}), "next");
  EXPECT_EQ(protocol::type_of({{"type", 5}}), "");
  EXPECT_EQ(protocol::type_of(nlohmann::json::object()), "");
  EXPECT_TRUE(protocol::is_ready(protocol::ready()));
  EXPECT_FALSE(protocol::is_ready({{"type", nullptr}, {"protocol", 1}}));
  EXPECT_FALSE(protocol::is_ready({{"type", "ready"}, {"protocol", "1"}}));
}

TEST(protocol, tensors_outside_their_region_are_refused) {
  const case_spec c = parse_case(host_test::attend_name);
  const input_set set = make_inputs(c, make_problem(c));
  const protocol::execute_message sent = protocol::encode_execute(set, nullptr, {}, false);
  const auto decode = [&](const std::function<void(nlohmann::json&)>& spoil) {
    message m;
    m.body = sent.body;
    spoil(m.body);
    for (const int fd : sent.fds) m.fds.emplace_back(::dup(fd));
    return protocol::decode_execute(m);
  };
  EXPECT_EQ(decode([](auto&) {}).bound.tensors.size(), set.inputs.size() + set.outputs.size());
  EXPECT_THROW(decode([](auto& b) { b["tensors"][0]["shape"][0] = 1 << 30; }), usage_error);
  EXPECT_THROW(decode([](auto& b) { b["tensors"][0]["offset"] = std::uint64_t{1} << 50; }), usage_error);
  EXPECT_THROW(decode([](auto& b) { b["tensors"][0]["region"] = 99; }), usage_error);
  EXPECT_THROW(decode([](auto& b) { b["tensors"][0]["region"] = -1; }), usage_error);
  EXPECT_THROW(decode([](auto& b) { b["tensors"][0]["dtype"] = "tf32"; }), usage_error);
  EXPECT_THROW(decode([](auto& b) { b["tensors"][0]["strides"][0] = -4; }), usage_error);
  EXPECT_THROW(decode([](auto& b) { b["tensors"][0].erase("strides"); }), usage_error);
  EXPECT_THROW(decode([](auto& b) { b["tensors"][0].erase("shape"); }), usage_error);
  EXPECT_THROW(decode([](auto& b) {
                 b["tensors"][0]["shape"][0] = 0;
                 b["tensors"][0]["offset"] = std::uint64_t{1} << 63;
               }),
               usage_error);
  EXPECT_THROW(decode([](auto& b) {
                 for (auto& side : b["tensors"][0]["shape"]) side = std::int64_t{1} << 62;
                 b["tensors"][0]["region"] = -1;
               }),
               usage_error);
  EXPECT_THROW(decode([](auto& b) { b["tensors"][0]["slot"] = "queue"; }), usage_error);
  EXPECT_THROW(decode([](auto& b) { b["regions"].erase(0); }), usage_error);
  EXPECT_THROW(decode([](auto& b) { b["regions"][0]["bytes"] = std::uint64_t{1} << 40; }), suite_error);
  EXPECT_THROW(decode([](auto& b) { b.erase("problem"); }), usage_error);
}
