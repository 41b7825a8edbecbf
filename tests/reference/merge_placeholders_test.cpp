// SPDX-License-Identifier: Apache-2.0
#include "reference/merge_placeholders.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"

namespace msabench::reference {
namespace {

constexpr std::int32_t image = 900, video = 901;

// Rows of width 2 that say where they come from: text token i is (i, 0), image row i (i, 1), video row i (i, 2).
struct text {
  explicit text(std::vector<std::int32_t> tokens, std::int64_t images, std::int64_t videos) : ids(std::move(tokens)) {
    const auto rows = [](std::int64_t count, float mark) {
      std::vector<float> values;
      for (std::int64_t i = 0; i < count; ++i) values.insert(values.end(), {static_cast<float>(i), mark});
      return values;
    };
    hidden = rows(std::ssize(ids), 0), image_rows = rows(images, 1), video_rows = rows(videos, 2);
  }
  placeholder_inputs inputs() const {
    const auto view = [](const std::vector<float>& values) {
      return tensor_view{values.data(), packed(fp32, {std::ssize(values) / 2, 2})};
    };
    return {view(hidden), {ids.data(), packed(i32, {std::ssize(ids)})}, view(image_rows), view(video_rows), image,
            video};
  }
  std::string refusal() const {
    try {
      merge_placeholders(inputs());
    } catch (const usage_error& e) {
      return e.what();
    }
    return "accepted";
  }

  std::vector<std::int32_t> ids;
  std::vector<float> hidden, image_rows, video_rows;
};

using rows = std::vector<double>;

TEST(merge_placeholders, each_kind_replaces_its_placeholders_in_order) {
  EXPECT_EQ(merge_placeholders(text({5, image, image, 6, video, image, video, 7}, 3, 2).inputs()),
            (rows{0, 0, 0, 1, 1, 1, 3, 0, 0, 2, 2, 1, 1, 2, 7, 0}));
}

TEST(merge_placeholders, text_alone_stays_as_it_is) {
  EXPECT_EQ(merge_placeholders(text({1, 2, 3}, 0, 0).inputs()), (rows{0, 0, 1, 0, 2, 0}));
  EXPECT_TRUE(merge_placeholders(text({}, 0, 0).inputs()).empty());
}

TEST(merge_placeholders, placeholders_alone_are_the_features) {
  EXPECT_EQ(merge_placeholders(text({image, image}, 2, 0).inputs()), (rows{0, 1, 1, 1}));
  EXPECT_EQ(merge_placeholders(text({video}, 0, 1).inputs()), (rows{0, 2}));
}

TEST(merge_placeholders, a_count_mismatch_names_both_counts) {
  const auto expect_says = [](const text& of, const std::string& kind, const std::string& given,
                              const std::string& wanted) {
    const std::string line = of.refusal();
    EXPECT_EQ(line.rfind(kind + "_features " + given + " rows: ", 0), 0u) << line;
    EXPECT_NE(line.find(wanted + " placeholders of id " + (kind == "image" ? "900" : "901")), std::string::npos)
        << line;
  };
  expect_says(text({1, image, 2}, 2, 0), "image", "2", "1");
  expect_says(text({1, image, image}, 1, 0), "image", "1", "2");
  expect_says(text({1, image, 2}, 1, 3), "video", "3", "0");
  expect_says(text({video, video}, 0, 0), "video", "0", "2");
  // As many rows as placeholders in all, but of the wrong kind.
  expect_says(text({image, video, video}, 2, 1), "image", "2", "1");
}

TEST(merge_placeholders, types_may_differ) {
  text of({image, 4}, 1, 0);
  auto in = of.inputs();
  const std::vector<double> features{0.1, 0.2};
  in.image_features = {features.data(), packed(fp64, {1, 2})};
  EXPECT_EQ(merge_placeholders(in), (rows{0.1, 0.2, 1, 0}));
}

TEST(merge_placeholders, contradicting_shapes_are_refused) {
  const text of({image, 4, video}, 1, 1);
  const auto refused = [&](auto change) {
    auto in = of.inputs();
    change(in);
    EXPECT_THROW(merge_placeholders(in), suite_error);
  };
  refused([](auto& in) { in.image_features.desc.shape[1] = 1; });
  refused([](auto& in) { in.video_features.desc.shape = {2}; });
  refused([](auto& in) { in.hidden.desc.shape[0] = 4; });
  refused([](auto& in) { in.token_ids.desc.shape = {3, 1}; });
  refused([](auto& in) { in.token_ids.desc.type = fp32; });
  refused([](auto& in) { in.video_id = image; });
}

}  // namespace
}  // namespace msabench::reference
