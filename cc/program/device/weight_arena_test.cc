#include "cc/program/device/weight_arena.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cc/ops/op.h"
#include "cc/program/program.h"

namespace pagemill::program {
namespace {

constexpr ops::Kernel kPlain = {.op = "op", .name = "plain"};

// The head reads rows of `table`, too, if they are tied. Both tables have 1,024 bytes, the experts
// 512, `narrow` 256 and `wide` 768, with a bias of 16; the norm has 32.
std::string Text(bool tied) {
  return std::string(R"(pagemill-program 3
file 0 /nowhere/model
weight table f32 32,8 0 0
weight norm f32 8 0 1024
weight narrow f32 8,8 0 2048
weight wide f32 24,8 0 4096
weight bias f32 4 0 5120
weight experts f32 2,8,8 0 6144
weight head f32 32,8 0 8192
input token_ids i32 tokens
value x f32 tokens,8
value n f32 tokens,8
value a f32 tokens,8
value b f32 tokens,8
value c f32 tokens,8
value logits f32 logits_rows,32
op embedding token_ids,table -> x
op rms_norm x,norm -> n
op linear n,narrow,- -> a
op linear a,wide,bias -> b
op grouped_linear b,experts -> c
op linear c,)") +
         (tied ? "table" : "head") + ",- -> logits\noutput logits logits\n";
}

struct Arena {
  Arena(bool tied, int64_t offload_bytes)
      : program(*Program::Parse(Text(tied))),
        arena(program, std::vector<const ops::Kernel*>(program.ops().size(), &kPlain),
              offload_bytes) {}

  // The names of weights that are on the host.
  std::vector<std::string> OnHost() const {
    std::vector<std::string> names;
    for (const WeightArena::Piece& piece : arena.pieces()) {
      if (piece.place.on_host) names.push_back(program.value(piece.weight).name);
    }
    return names;
  }

  const Program program;
  const WeightArena arena;
};

using Names = std::vector<std::string>;

TEST(WeightArena, WhatAStepReadsLeastOfIsOffloadedFirst) {
  EXPECT_EQ(Arena(false, 0).OnHost(), Names());
  EXPECT_EQ(Arena(false, 1).OnHost(), Names({"table"}));
  EXPECT_EQ(Arena(false, 1024).OnHost(), Names({"table"}));
  EXPECT_EQ(Arena(false, 1025).OnHost(), Names({"table", "experts"}));
  EXPECT_EQ(Arena(false, 1537).OnHost(), Names({"table", "experts", "head"}));
  EXPECT_EQ(Arena(false, 2561).OnHost(), Names({"table", "wide", "bias", "experts", "head"}));
}

TEST(WeightArena, ATableThatTheHeadReadsIsNotReadByRows) {
  EXPECT_EQ(Arena(true, 1).OnHost(), Names({"experts"}));
  EXPECT_EQ(Arena(true, 513).OnHost(), Names({"table", "experts"}));
}

TEST(WeightArena, VectorsOfTheirOwnStayOnTheDevice) {
  const Arena all(false, 1 << 20);
  EXPECT_EQ(all.OnHost(), Names({"table", "narrow", "wide", "bias", "experts", "head"}));
  EXPECT_EQ(all.arena.bytes(), 32);
  EXPECT_EQ(all.arena.offloadable_bytes(), 1024 + 512 + 1024 + 256 + 768 + 16);
  EXPECT_GE(all.arena.host_bytes(), all.arena.offloadable_bytes());
  EXPECT_EQ(Arena(false, 0).arena.offloadable_bytes(), all.arena.offloadable_bytes());
}

TEST(WeightArena, PiecesOfEachMemoryFollowEachOther) {
  for (const int64_t offload_bytes : {0, 1024, 2000, 4000}) {
    const Arena some(false, offload_bytes);
    int64_t end[2] = {};
    for (const WeightArena::Piece& piece : some.arena.pieces()) {
      EXPECT_GE(piece.place.offset, end[piece.place.on_host]);
      EXPECT_EQ(piece.place.offset % piece.alignment, 0);
      end[piece.place.on_host] = piece.place.offset + piece.bytes;
    }
    EXPECT_EQ(some.arena.bytes(), end[false]);
    EXPECT_EQ(some.arena.host_bytes(), end[true]);
  }
}

}  // namespace
}  // namespace pagemill::program
