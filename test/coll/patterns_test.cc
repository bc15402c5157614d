#include "coll/patterns.hpp"

#include <gtest/gtest.h>

namespace tutti {
namespace {

TEST(Patterns, PartsCoverTheWholeAlmostEvenly) {
  for (uint64_t n : {0, 1, 5, 64, 67})
    for (int count : {1, 2, 3, 8, 33}) {
      uint64_t at = 0;
      for (const Block& block : parts(n, count)) {
        EXPECT_EQ(block.offset, at);
        EXPECT_LE(block.count, n / static_cast<uint64_t>(count) + 1);
        at += block.count;
      }
      EXPECT_EQ(at, n);
    }
}

TEST(Patterns, PiecesNeverExceedTheirLimit) {
  EXPECT_EQ(pieces(0, 100, 4, 8).count, 1u);
  EXPECT_EQ(pieces(100, 40, 4, 8).size, 13u);
  EXPECT_EQ(pieces(100, 40, 4, 100).count, 10u);
  EXPECT_EQ(pieces(10, 1, 4, 100).size, 1u);
}

TEST(Patterns, KnomialTreeIsATreeOfRuns) {
  for (int radix : {2, 3, 4, 7})
    for (int n = 1; n <= 70; ++n) {
      for (int v = 0; v < n; ++v) {
        KnomialTree tree(v, n, radix);
        int end = v + 1;
        for (const auto& child : tree.children) {
          EXPECT_EQ(child.v, end);
          EXPECT_EQ(KnomialTree(child.v, n, radix).parent, v);
          EXPECT_EQ(KnomialTree(child.v, n, radix).span, child.span);
          end = child.v + child.span;
        }
        EXPECT_EQ(end, v + tree.span);
        EXPECT_EQ(tree.parent < 0, v == 0);
      }
      EXPECT_EQ(KnomialTree(0, n, radix).span, n);
    }
}

TEST(Patterns, InorderTreeIsASearchTreeWithEvenLeaves) {
  for (int n = 1; n <= 70; ++n) {
    int roots = 0;
    for (int at = 0; at < n; ++at) {
      InorderTree node(at, n);
      if (node.parent < 0) {
        ++roots;
        EXPECT_EQ(node.first, 0);
        EXPECT_EQ(node.last, n - 1);
      }
      for (int child : {node.left, node.right})
        if (child >= 0) {
          EXPECT_EQ(InorderTree(child, n).parent, at) << n;
        }
      if (node.left >= 0) {
        EXPECT_EQ(InorderTree(node.left, n).last, at - 1);
      } else {
        EXPECT_EQ(node.first, at);
      }
      if (node.right >= 0) {
        EXPECT_EQ(InorderTree(node.right, n).first, at + 1);
      } else {
        EXPECT_EQ(node.last, at);
      }
      if (at % 2 == 0) {
        EXPECT_TRUE(node.left < 0 && node.right < 0);
      }
    }
    EXPECT_EQ(roots, 1);
  }
}

TEST(Patterns, FoldKeepsNeighboursTogether) {
  for (int n = 1; n <= 40; ++n) {
    const Fold fold(n);
    int before = -1;
    for (int r = 0; r < n; ++r) {
      EXPECT_TRUE(fold.active_of(r) == before || fold.active_of(r) == before + 1);
      before = fold.active_of(r);
      if (!fold.idle(r)) {
        EXPECT_EQ(fold.rank_of(before), r);
      }
    }
    EXPECT_EQ(before + 1, fold.power);
  }
}

}  // namespace
}  // namespace tutti
