/* SPDX-License-Identifier: Apache-2.0
 * The smallest complete plugin: `attend` in plain C, one thread, fp32 arithmetic. It takes bf16 and fp32, contiguous
 * and paged (page_layout 1) keys and values of any size, and refuses everything else with a text. Start here, then put
 * your own kernel in the place of attend_row. */
#include <math.h>
#include <msabench/plugin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const msabench_dtype fp32 = {2, 32, 1}, bf16 = {4, 16, 1}, int32 = {0, 32, 1};
static int same(msabench_dtype a, msabench_dtype b) { return !memcmp(&a, &b, sizeof a); }

static _Thread_local char text[256]; /* R7: valid until the thread's next call */
static const char* last_error(void) { return text; }
#define VALID(x, ...) \
  if (!(x)) return snprintf(text, sizeof text, __VA_ARGS__), MSABENCH_INVALID_PROBLEM
#define SUPPORTED(x, ...) \
  if (!(x)) return snprintf(text, sizeof text, __VA_ARGS__), MSABENCH_UNSUPPORTED
struct msabench_plan {
  msabench_problem problem;
};

/* R9: query and plan agree, so both come here. A host of another version may have a shorter or a longer struct. */
static msabench_status check_problem(const msabench_problem* given, msabench_problem* p) {
  *text = 0;
  memset(p, 0, sizeof *p);
  memcpy(p, given, given->struct_size < sizeof *p ? given->struct_size : sizeof *p);
  for (size_t i = sizeof *p; i < given->struct_size; ++i)
    SUPPORTED(((const char*)given)[i] == 0, "struct_size %u: unknown field set; pass 0", given->struct_size);
  SUPPORTED(p->op == MSABENCH_OP_ATTEND, "op %d: only attend (4) is here; ask for that", p->op);
  SUPPORTED(p->reserved == 0, "reserved %u: unknown; pass 0", p->reserved);
  VALID(p->topk > 0 && p->local_blocks >= 0 && p->init_blocks >= 0 && p->local_blocks <= p->topk - p->init_blocks,
        "topk %d: must be at least 1 and hold local_blocks and init_blocks, 0 or more each; correct it", p->topk);
  VALID(p->block > 0 && p->d > 0, "block %d, d %d: must be at least 1; correct them", p->block, p->d);
  VALID(p->hkv > 0, "hkv %d: must be at least 1; correct it", p->hkv);
  VALID(p->hq > 0 && p->hq % p->hkv == 0, "hq %d: no multiple of hkv %d; correct it", p->hq, p->hkv);
  SUPPORTED(p->page_layout == 0 || p->page_layout == 1, "page_layout %d: not here; use 0 or 1", p->page_layout);
  VALID(p->page_layout ? p->page_size > 0 : p->page_size == 0, "page_size %d: not of page_layout", p->page_size);
  SUPPORTED(same(p->q, fp32) || same(p->q, bf16), "q {%d,%d}: use bf16 or fp32", p->q.code, p->q.bits);
  SUPPORTED(same(p->q, p->kv) && same(p->q, p->out), "kv {%d,%d}: q, kv and out are one type here", p->kv.code,
            p->kv.bits);
  VALID(isfinite(p->softmax_scale), "softmax_scale: not finite; correct it");
  SUPPORTED(p->kv_scale == 0, "kv_scale %d: no scaled types here; pass 0", p->kv_scale);
  SUPPORTED(p->splits == 0, "splits %d: rows are not split here; pass 0", p->splits);
  SUPPORTED(p->profile.in_id_form == MSABENCH_FORM_EXACT || p->profile.in_id_form == MSABENCH_FORM_SHORT,
            "profile.in_id_form %d: ids must be distinct and visible; ask for 0 or 1", p->profile.in_id_form);
  return MSABENCH_OK;
}

static msabench_status query(const msabench_problem* given, msabench_capability* out) {
  msabench_problem p;
  const msabench_status status = check_problem(given, &p);
  if (status != MSABENCH_OK) return status;
  msabench_capability answer = {.struct_size = out->struct_size};
  msabench_numerics* n = &answer.numerics;
  n->struct_size = sizeof *n;
  n->operand = n->v_operand = n->out_store = p.q;
  n->score_acc = n->score_store = n->p_operand = n->pv_acc = n->partial_store = n->ds_operand = fp32;
  /* One running sum over all keys. Limits are derived from this declaration, so it pays to be honest and to be good. */
  n->chain_out = n->chain_row_sum = (uint32_t)p.topk * (uint32_t)p.block;
  answer.profile.struct_size = sizeof answer.profile;
  answer.profile.in_id_form = p.profile.in_id_form;
  answer.profile.repeatable = answer.profile.batch_invariant = 1;
  memcpy(out, &answer, out->struct_size < sizeof answer ? out->struct_size : sizeof answer);
  return MSABENCH_OK;
}

static msabench_status plan(const msabench_problem* given, msabench_plan** out) {
  msabench_problem p;
  const msabench_status status = check_problem(given, &p);
  if (status != MSABENCH_OK) return status;
  msabench_plan* made = malloc(sizeof *made);
  if (made == NULL) return snprintf(text, sizeof text, "plan: out of memory; free some"), MSABENCH_NO_RESOURCES;
  made->problem = p;
  *out = made;
  return MSABENCH_OK;
}

static void destroy(msabench_plan* made) { free(made); }

static msabench_status workspace(const msabench_plan* made, uint64_t* bytes, uint32_t* alignment) {
  *bytes = (uint64_t)made->problem.d * sizeof(float); /* one row of sums; R3: run itself allocates nothing */
  *alignment = sizeof(float);
  return MSABENCH_OK;
}

static float load(const msabench_tensor* from, int64_t i) {
  if (same(from->dtype, fp32)) return ((const float*)from->data)[i];
  const uint32_t bits = (uint32_t)((const uint16_t*)from->data)[i] << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static void store(float value, const msabench_tensor* to, int64_t i) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if (same(to->dtype, bf16)) /* to nearest even */
    ((uint16_t*)to->data)[i] = (uint16_t)(isnan(value) ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  else
    ((float*)to->data)[i] = value;
}

/* R4: where things are is read from the tensors. First element of key (or value) j of sequence b. */
static int64_t token(const msabench_args* args, const msabench_tensor* kv, int64_t b, int64_t head, int64_t j) {
  const int64_t *strides = kv->strides, page_size = kv->shape[2];
  if (kv->rank == 3)
    return (((const int32_t*)args->slot[MSABENCH_CU_SEQLENS_KV]->data)[b] + j) * strides[0] + head * strides[1];
  const msabench_tensor* table = args->slot[MSABENCH_BLOCK_TABLE];
  const int64_t page = ((const int32_t*)table->data)[b * table->strides[0] + j / page_size];
  return page * strides[0] + head * strides[1] + j % page_size * strides[2];
}

/* Two passes over the keys: the greatest score, then exponentials and values. */
static void attend_row(const msabench_problem* p, const msabench_args* args, int64_t b, int64_t row, int64_t pos,
                       int32_t head, float* sum) {
  const msabench_tensor *q = args->slot[MSABENCH_Q], *k = args->slot[MSABENCH_K], *v = args->slot[MSABENCH_V];
  const msabench_tensor *ids = args->slot[MSABENCH_IDS], *out = args->slot[MSABENCH_OUT];
  const msabench_tensor* lse = MSABENCH_LSE < args->slot_count ? args->slot[MSABENCH_LSE] : NULL;
  const int32_t kv_head = head / (p->hq / p->hkv);
  const int32_t* blocks = (const int32_t*)ids->data + row * ids->strides[0] + kv_head * ids->strides[1];
  const float scale = (float)(p->softmax_scale != 0 ? p->softmax_scale : 1 / sqrt(p->d));
  float maximum = -INFINITY, weight = 0;
  memset(sum, 0, (size_t)p->d * sizeof *sum);
  for (int32_t step = 0; step < 2 * p->topk; ++step) {
    const int64_t block = blocks[step % p->topk], end = block < 0 ? 0 : (block + 1) * p->block; /* -1 is no block */
    for (int64_t j = end - p->block; j >= 0 && j < end && j <= pos; ++j) {
      const int64_t k_at = token(args, k, b, kv_head, j), v_at = token(args, v, b, kv_head, j);
      float score = 0;
      for (int32_t c = 0; c < p->d; ++c)
        score += load(q, row * q->strides[0] + head * q->strides[1] + c) * load(k, k_at + c);
      if (step < p->topk) maximum = fmaxf(maximum, score * scale);
      if (step < p->topk) continue;
      const float e = expf(score * scale - maximum);
      weight += e;
      for (int32_t c = 0; c < p->d; ++c) sum[c] += e * load(v, v_at + c);
    }
  }
  for (int32_t c = 0; c < p->d; ++c) /* a row without keys is 0, its lse -infinity */
    store(weight > 0 ? sum[c] / weight : 0, out, row * out->strides[0] + head * out->strides[1] + c);
  if (lse != NULL)
    store(weight > 0 ? (float)(maximum + log(weight)) : -INFINITY, lse, row * lse->strides[0] + head * lse->strides[1]);
}

/* R9: what only a tensor shows. Sizes of -1 are free. */
static msabench_status check(const msabench_args* args, msabench_slot slot, const char* name, msabench_dtype type,
                             int rank, const int64_t* shape) {
  const msabench_tensor* t = slot < args->slot_count ? args->slot[slot] : NULL;
  int64_t elements = 1;
  VALID(t != NULL, "%s absent: attend needs it; pass it", name);
  VALID(same(t->dtype, type), "%s.dtype {%d,%d}: not the problem's; convert it", name, t->dtype.code, t->dtype.bits);
  VALID(t->rank == rank, "%s.rank %d: must be %d; reshape it", name, t->rank, rank);
  for (int i = 0; i < rank; elements *= t->shape[i++])
    VALID(shape[i] < 0 || t->shape[i] == shape[i], "%s.shape[%d]: must be %d; correct it", name, i, (int)shape[i]);
  VALID(elements == 0 || t->data != NULL, "%s.data null: not empty; pass its memory", name);
  SUPPORTED(elements == 0 || t->strides[rank - 1] == 1, "%s.strides[%d]: must be 1; copy it", name, rank - 1);
  return MSABENCH_OK;
}
#define CHECK(slot, name, type, rank, ...) \
  if ((status = check(args, slot, name, type, rank, (int64_t[]){__VA_ARGS__}))) return status

static msabench_status run(msabench_plan* made, const msabench_args* args, void* scratch, void* stream) {
  const msabench_problem* p = &made->problem;
  msabench_status status = MSABENCH_OK;
  (void)stream, *text = 0;
  CHECK(MSABENCH_KV_LENS, "kv_lens", int32, 1, -1);
  CHECK(MSABENCH_Q, "q", p->q, 3, -1, p->hq, p->d);
  const int64_t batch = args->slot[MSABENCH_KV_LENS]->shape[0], rows = args->slot[MSABENCH_Q]->shape[0];
  CHECK(MSABENCH_CU_SEQLENS_Q, "cu_seqlens_q", int32, 1, batch + 1);
  CHECK(MSABENCH_IDS, "ids", int32, 3, rows, p->hkv, p->topk);
  CHECK(MSABENCH_OUT, "out", p->out, 3, rows, p->hq, p->d);
  if (MSABENCH_LSE < args->slot_count && args->slot[MSABENCH_LSE]) CHECK(MSABENCH_LSE, "lse", fp32, 2, rows, p->hq);
  if (p->page_layout == 0) {
    CHECK(MSABENCH_CU_SEQLENS_KV, "cu_seqlens_kv", int32, 1, batch + 1);
    CHECK(MSABENCH_K, "k", p->kv, 3, -1, p->hkv, p->d);
    CHECK(MSABENCH_V, "v", p->kv, 3, -1, p->hkv, p->d);
  } else {
    CHECK(MSABENCH_BLOCK_TABLE, "block_table", int32, 2, batch, -1);
    CHECK(MSABENCH_K, "k", p->kv, 4, -1, p->hkv, p->page_size, p->d);
    CHECK(MSABENCH_V, "v", p->kv, 4, -1, p->hkv, p->page_size, p->d);
  }
  const int32_t *starts = args->slot[MSABENCH_CU_SEQLENS_Q]->data, *lens = args->slot[MSABENCH_KV_LENS]->data;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t row = starts[b]; row < starts[b + 1]; ++row) {
      const int64_t pos = lens[b] - (starts[b + 1] - row); /* the call's last token is the sequence's last */
      for (int32_t head = 0; head < p->hq; ++head) attend_row(p, args, b, row, pos, head, scratch);
    }
  }
  return MSABENCH_OK;
}

const msabench_plugin* msabench_plugin_get(const msabench_host* host) {
  /* clang-format off */
  static const msabench_plugin table = {sizeof table, MSABENCH_ABI_MAJOR, MSABENCH_ABI_MINOR, 0,
    "example-c", "1.0", "attend in plain C", query, plan, workspace, run, destroy, last_error};
  /* clang-format on */
  return host->device.type == 1 ? &table : NULL; /* NULL: this does not run there */
}
