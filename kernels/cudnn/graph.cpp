// SPDX-License-Identifier: Apache-2.0
#include "kernels/cudnn/graph.h"

// The headers of cudnn-frontend call cuDNN by its names; these are had from the library that is opened here.
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#include <cudnn_frontend.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <unordered_map>

#include "kernels/common/libraries.h"
#include "kernels/common/types.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}
namespace fe = cudnn_frontend;

namespace msabench::cudnn {
namespace {

using kernels::bf16_type;
using kernels::found_library;
using kernels::same_type;
using kernels::symbol_scope;

/// cuDNN's compiler takes over the handlers of some signals; a plugin may not (rule R6).
class kept_handlers {
 public:
  kept_handlers() {
    for (int signal = 1; signal < count; ++signal) known_[signal] = ::sigaction(signal, nullptr, &before_[signal]) == 0;
  }
  ~kept_handlers() {
    for (int signal = 1; signal < count; ++signal) {
      struct sigaction now;
      if (!known_[signal] || ::sigaction(signal, nullptr, &now) != 0) continue;
      if (now.sa_handler != before_[signal].sa_handler || now.sa_flags != before_[signal].sa_flags)
        ::sigaction(signal, &before_[signal], nullptr);
    }
  }
  kept_handlers(const kept_handlers&) = delete;
  kept_handlers& operator=(const kept_handlers&) = delete;

 private:
  static constexpr int count = 32;  // the ordinary signals
  struct sigaction before_[count];
  bool known_[count] = {};
};

struct opened {
  std::string missing;  ///< "": all there
};

/// What cuDNN and its headers ask for by name has to be loaded before they do.
const opened& open_cudnn() {
  static const opened result = [] {
    const found_library runtime = kernels::open_library("libcudart.so", {13, 12}, symbol_scope::process);
    if (runtime.handle == nullptr) return opened{kernels::not_found("libcudart", runtime)};
    // Without its run-time compiler cuDNN falls back to kernels of an older architecture, at half the speed, and says nothing.
    const found_library compiler = kernels::open_library("libnvrtc.so", {13, 12}, symbol_scope::process);
    if (compiler.handle == nullptr) return opened{kernels::not_found("libnvrtc", compiler)};
    const found_library library = kernels::open_library("libcudnn.so", {9}, symbol_scope::process);
    if (library.handle == nullptr) return opened{kernels::not_found("libcudnn", library)};
    fe::cudnn_dlhandle = library.handle;
    return opened{};
  }();
  return result;
}

using fe::graph::Tensor_attributes;
using tensor = std::shared_ptr<Tensor_attributes>;
using sizes = std::vector<std::int64_t>;

/// The tensors that both directions have.
class builder {
 public:
  explicit builder(const msabench_problem& p) : p_(p), graph_(std::make_shared<fe::graph::Graph>()) {
    const auto stored = same_type(p.q, bf16_type) ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF;
    graph_->set_io_data_type(stored)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    if (rows_of(p) == query_rows::ragged) {
      q_at_ = vector(q_offsets_id, p.batch + 1, fe::DataType_t::INT64);
      if (!paged()) kv_at_ = vector(kv_offsets_id, p.batch + 1, fe::DataType_t::INT64);
    }
    if (rows_of(p) == query_rows::aligned) return;
    q_lengths_ = vector(q_lengths_id, p.batch, fe::DataType_t::INT32);
    kv_lengths_ = vector(kv_lengths_id, p.batch, fe::DataType_t::INT32);
  }

  std::shared_ptr<fe::graph::Graph> forward() {
    auto how = fe::graph::SDPA_attributes().set_generate_stats(true);
    describe(how);
    if (paged()) {
      const std::int64_t pages = pages_of_sequence(p_);
      const tensor table = graph_->tensor(Tensor_attributes()
                                              .set_uid(table_id)
                                              .set_dim({p_.batch, 1, pages, 1})
                                              .set_stride({pages, pages, 1, 1})
                                              .set_data_type(fe::DataType_t::INT32));
      how.set_paged_attention_k_table(table).set_paged_attention_v_table(table).set_paged_attention_max_seq_len_kv(
          static_cast<int>(p_.max_kv_len));
    }
    auto [out, stats] = graph_->sdpa(rows(q_id), cache(k_id), cache(v_id), how);
    as_rows(*out, out_id).set_output(true);
    // Without offsets: the decode kernels write no other form.
    as_stats(*stats).set_output(true);
    return graph_;
  }

  std::shared_ptr<fe::graph::Graph> backward() {
    // In an order of its own each time: the fixed one keeps a sum of queries' gradients for every 256 keys, 552 GB of them at 64K tokens.
    auto how = fe::graph::SDPA_backward_attributes().set_deterministic_algorithm(false);
    describe(how);
    Tensor_attributes stats;
    as_stats(stats);
    auto [dq, dk, dv] = graph_->sdpa_backward(rows(q_id), cache(k_id), cache(v_id), rows(out_id), rows(d_out_id),
                                              graph_->tensor(stats), how);
    as_rows(*dq, dq_id).set_output(true);
    as_cache(*dk, dk_id).set_output(true);
    as_cache(*dv, dv_id).set_output(true);
    return graph_;
  }

 private:
  bool paged() const { return p_.page_layout != 0 && !gathers(p_); }

  tensor vector(std::int64_t id, std::int64_t size, fe::DataType_t type) {
    return graph_->tensor(
        Tensor_attributes().set_uid(id).set_dim({size, 1, 1, 1}).set_stride({1, 1, 1, 1}).set_data_type(type));
  }

  Tensor_attributes& as_rows(Tensor_attributes& t, std::int64_t id) {
    const std::int64_t hq = p_.hq, d = p_.d;
    t.set_uid(id).set_dim({p_.batch, hq, p_.max_q_len, d}).set_stride({p_.max_q_len * hq * d, d, hq * d, 1});
    if (q_at_ != nullptr) t.set_ragged_offset(q_at_);
    return t;
  }
  tensor rows(std::int64_t id) {
    Tensor_attributes t;
    return graph_->tensor(as_rows(t, id));
  }

  Tensor_attributes& as_cache(Tensor_attributes& t, std::int64_t id) {
    const std::int64_t hkv = p_.hkv, d = p_.d;
    t.set_uid(id);
    if (paged())
      t.set_dim({p_.pool_pages, hkv, p_.page_size, d}).set_stride({hkv * p_.page_size * d, p_.page_size * d, d, 1});
    else
      t.set_dim({p_.batch, hkv, p_.max_kv_len, d}).set_stride({p_.max_kv_len * hkv * d, d, hkv * d, 1});
    if (kv_at_ != nullptr) t.set_ragged_offset(kv_at_);
    return t;
  }
  tensor cache(std::int64_t id) {
    Tensor_attributes t;
    return graph_->tensor(as_cache(t, id));
  }

  Tensor_attributes& as_stats(Tensor_attributes& t) {
    return t.set_uid(stats_id)
        .set_data_type(fe::DataType_t::FLOAT)
        .set_dim({p_.batch, p_.hq, p_.max_q_len, 1})
        .set_stride({p_.hq * p_.max_q_len, p_.max_q_len, 1, 1});
  }

  template <class Attributes>
  void describe(Attributes& how) {
    const double scale = p_.softmax_scale != 0 ? p_.softmax_scale : 1 / std::sqrt(static_cast<double>(p_.d));
    how.set_attn_scale(static_cast<float>(scale));
    if (rows_of(p_) == query_rows::aligned) return void(how.set_causal_mask(true));
    how.set_padding_mask(true).set_seq_len_q(q_lengths_).set_seq_len_kv(kv_lengths_);
    // The last token of a sequence sees every key, and cuDNN splits the keys of one token only where nothing is masked.
    if (p_.max_q_len > 1 && p_.op != MSABENCH_OP_VIT_ATTEND) how.set_causal_mask_bottom_right(true);
  }

  const msabench_problem& p_;
  std::shared_ptr<fe::graph::Graph> graph_;
  tensor q_at_, kv_at_, q_lengths_, kv_lengths_;
};

class built_graph : public graph {
 public:
  /// Throws what cuDNN says.
  explicit built_graph(const msabench_problem& p) {
    const auto good = [](fe::error_t e) {
      if (!e.is_good()) throw std::runtime_error(e.get_message());
    };
    if (fe::detail::create_handle(&handle_) != CUDNN_STATUS_SUCCESS)
      throw std::runtime_error("no handle can be had; is there a GPU?");
    builder made(p);
    graph_ = p.op == MSABENCH_OP_DENSE_BACKWARD ? made.backward() : made.forward();
    good(graph_->validate());
    good(graph_->build_operation_graph(handle_));
    good(graph_->create_execution_plans({fe::HeurMode_t::A}));
    good(graph_->check_support(handle_));
    good(graph_->build_plans(handle_));
    good(graph_->get_workspace_size(bytes_));
  }
  ~built_graph() override {
    graph_.reset();
    if (handle_ != nullptr) fe::detail::destroy_handle(handle_);
  }
  built_graph(const built_graph&) = delete;
  built_graph& operator=(const built_graph&) = delete;

  std::int64_t workspace_bytes() const override { return bytes_; }

  std::string execute(const pointers& tensors, void* workspace, void* stream) override {
    const kept_handlers handlers;
    try {
      if (fe::detail::set_stream(handle_, static_cast<cudaStream_t>(stream)) != CUDNN_STATUS_SUCCESS)
        return "cuDNN: the stream is not taken";
      std::unordered_map<std::int64_t, void*> pack(tensors.begin(), tensors.end());
      fe::error_t e = graph_->execute(handle_, pack, workspace);
      return e.is_good() ? "" : "cuDNN: " + e.get_message();
    } catch (const std::exception& e) {
      return std::string("cuDNN: ") + e.what();
    }
  }

 private:
  cudnnHandle_t handle_ = nullptr;
  std::shared_ptr<fe::graph::Graph> graph_;
  std::int64_t bytes_ = 0;
};

}  // namespace

query_rows rows_of(const msabench_problem& p) {
  if (p.op == MSABENCH_OP_DENSE_BACKWARD) {
    // Aligned rows are as many as keys: of a chunk of a longer sequence they would be most of the work.
    const bool square = p.batch == 1 && p.page_layout == 0 && p.max_q_len == p.max_kv_len;
    return square ? query_rows::aligned : query_rows::ragged;
  }
  const bool several_contiguous = (p.page_layout == 0 || gathers(p)) && p.batch > 1;
  // Where padding would more than double the rows.
  const bool mostly_padding = p.batch * p.max_q_len > 2 * p.total_q + 1024;
  return several_contiguous || mostly_padding ? query_rows::ragged : query_rows::padded;
}

msabench_problem with_keys(const msabench_problem& p) {
  msabench_problem dense = p;
  if (p.op != MSABENCH_OP_VIT_ATTEND) return dense;
  dense.hkv = p.hq;
  dense.max_kv_len = p.max_q_len;
  dense.total_kv = p.total_q;
  dense.page_layout = 0;
  return dense;
}

bool gathers(const msabench_problem& p) { return p.page_layout != 0 && p.max_q_len > 1; }

std::int64_t pages_of_sequence(const msabench_problem& p) {
  return p.page_layout == 0 || gathers(p) ? 0 : (p.max_kv_len + p.page_size - 1) / p.page_size;
}

std::unique_ptr<graph> graph::build(const msabench_problem& problem, std::string& refusal) {
  const kept_handlers handlers;
  if (const opened& library = open_cudnn(); !library.missing.empty()) {
    refusal = library.missing;
    return nullptr;
  }
  try {
    return std::make_unique<built_graph>(problem);
  } catch (const std::exception& e) {
    refusal = std::string("cuDNN: ") + e.what();
    return nullptr;
  }
}

std::string library_version() {
  if (const opened& library = open_cudnn(); !library.missing.empty()) return "absent";
  const std::size_t v = fe::detail::get_backend_version();
  return std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." + std::to_string(v % 100);
}

}  // namespace msabench::cudnn
