#pragma once

#include <span>

#include "mlxx/base/phased_job.h"
#include "mlxx/kernels/decode_step/low_rank_change.h"
#include "mlxx/kernels/decode_step/sequence_kv.h"
#include "mlxx/kernels/layer_kernels.h"
#include "mlxx/kernels/row_kernels.h"

namespace mlxx::kernels {

// New tokens of one sequence.
struct DecoderInput {
  const int32_t* tokens;  // of a whole decoder
  const float* hidden;    // of one layer: [count, E]
  int count;
  SequenceKv::Step kv;  // holds room for them
  // Of its adapters; null: none.
  std::shared_ptr<const DecoderChanges> changes = nullptr;
};

// Which rows get logits.
enum class LogitRows { last_of_each, all };

// Runs a decoder on the CPU: all threads go through its layers together. Rows
// are computed in passes of bounded size; a row's bits do not depend on what
// else is computed, nor on whose rows have adapters. One thread at a time.
class DecoderProgram {
 public:
  DecoderProgram(
      std::shared_ptr<const DecoderWeights> weights,
      const Selection& selection);

  // Every input has the same count. logits: [inputs, V] or [inputs, count, V].
  void run(std::span<DecoderInput> inputs, LogitRows rows, float* logits);
  // That layer alone. The sequences hold its keys and values only. Every input
  // has the same count. out: [inputs, count, E].
  void run_layer(int layer, std::span<DecoderInput> inputs, float* out);

 private:
  enum class Part { attention, output, mlp, down, head };
  static constexpr int kParts = 5;
  // Up to so many rows, each thread prepares all of them for itself instead of
  // waiting for the others.
  static constexpr int kRowsPreparedByAll = 2;
  enum class Action { begin, prepare, multiply, rotate, attend, join, give };
  // A phase. `part`: which products, which rows are prepared, or what is added
  // to the layers' stream.
  struct Step {
    Action action;
    Part part;
    int layer;
  };
  struct Row {
    int input;
    int position;
    int64_t token;  // among those of its input
  };
  // Layers of a run; keys and values of the first one come first.
  struct Range {
    int begin;
    int end;
  };
  // Of one thread.
  struct Scratch {
    std::vector<PreparedRows> prepared;  // per part
    std::vector<float> reduced;          // as reduced_ of one part
    int prepared_for;                    // the step
    std::vector<float> row;
    PanelScratch panels;
    std::vector<float> tile;
    std::vector<float> second_tile;
    std::vector<float> outs;  // of attention
  };

  const DecoderLayerWeights& layer(int index) const {
    return weights_->layers[index];
  }
  int64_t query_size() const {
    return int64_t{weights_->heads} * weights_->head_size;
  }
  int64_t kv_size() const {
    return int64_t{weights_->kv_heads} * weights_->head_size;
  }
  int64_t group() const {
    return weights_->heads / weights_->kv_heads;
  }
  int64_t inner_size(int index) const {
    return layer(index).has_network() ? layer(index).down.matrix->in() : 0;
  }
  // Angles per row, of all tables.
  int64_t angles() const {
    return angle_starts_.back();
  }
  // Whether attention rotates what it needs by itself.
  bool places_itself(int index) const;
  int64_t input_size(Part part, int layer) const;
  int64_t row_count(Part part) const;

  ProductKernels kernels_of(Part part) const;
  void find_needs();
  void run_passes();
  void run_pass(int first, int count);
  void want_rows(int first, int count);
  void place_rows(int first, int count);
  void plan();
  void plan_layer(int index);
  void add(Action action, Part part, int layer, int64_t items);
  void add_products(Part part, int layer, int64_t items);
  void add_join(Part part, int layer);
  void do_items(int step, int thread, int64_t begin, int64_t end);

  void begin_row(int64_t row);
  void embed(int64_t row, float* to) const;
  void find_angles(int64_t row);
  void give_row(int64_t row);
  // x, or what the norm makes of it in y.
  const float* normed(
      const NormWeights& norm,
      const float* weight,
      const float* x,
      int64_t n,
      float* y) const;
  const float* normed(const NormWeights& norm, const float* x, float* y) const {
    return normed(
        norm,
        norm.weight.data(),
        x,
        static_cast<int64_t>(norm.weight.size()),
        y);
  }
  void norm_head(const HeadNorm& norm, int64_t head, float* x) const;
  void turn(int layer, int64_t row, float* head) const;
  // Norms, scales and rotates the queries of one key's group.
  void place_queries(int layer, int64_t row, int64_t kv_head, float* to);
  // Norms and rotates one key and writes it and its value into the block.
  void place_key(int layer, int64_t row, int64_t kv_head);
  // Before anything is seen.
  SplitState empty_state(int layer, int64_t head, float* out) const;
  void rotate(int layer, int64_t row);
  void attend(int layer, int64_t item, Scratch& scratch);
  void attend_tile(int layer, int64_t item, Scratch& scratch);
  void attend_split(int layer, int64_t item, Scratch& scratch);
  void set_visible(
      int layer,
      int64_t row,
      int64_t split,
      int32_t& begin,
      int32_t& end) const;
  KvSplit split_of(int input, int layer, int64_t head, int64_t split) const;
  const float* join_splits(int layer, int64_t row, Scratch& scratch);
  // What the products of a part read.
  struct Read {
    Part part;
    int layer;
    const PreparedRows& rows;
    const float* reduced;
  };
  // As it is before it is prepared.
  const float* input_row(Part part, int layer, int64_t row, Scratch& scratch);
  void prepare(
      Part part,
      int layer,
      int64_t row,
      PreparedRows& into,
      std::vector<float>& reduced,
      Scratch& scratch);
  void multiply(int step, int64_t item, Scratch& scratch);
  void multiply_head(const Read& read, int64_t item, Scratch& scratch);
  void multiply_inner(const Read& read, int64_t item, Scratch& scratch);

  void find_ranks();
  // The changes of the sequence that this row of a part is of; null: none.
  const DecoderChanges* changes_of(Part part, int64_t row) const;
  // The changed matrices that a part's rows are multiplied with.
  static std::span<const DecoderChanges::OfMatrix>
  changed_by(const DecoderChanges& changes, Part part, int layer);
  // a x of all changes.
  void reduce(
      Part part,
      int layer,
      int64_t row,
      const float* x,
      std::vector<float>& reduced);
  // Changes what product() has made, before the bias.
  void change_tile(
      const Read& read,
      int matrix,
      int64_t panel,
      int64_t rows,
      float* tile) const;
  // Adds what a part made, normed, to the row.
  void join(Part part, int layer, int64_t row, Scratch& scratch);
  // `matrix`: which one of those of changed_by().
  const float* product(
      const PanelLinear& linear,
      int matrix,
      int64_t panel,
      const Read& read,
      Scratch& scratch,
      std::vector<float>& tile);

  std::shared_ptr<const DecoderWeights> weights_;
  ProductKernels products_;
  const RowKernels& row_kernels_;
  const LayerKernels& layer_kernels_;
  const BlockAttention& attention_;
  KvType kv_type_;
  PhasedJob job_;
  std::vector<Scratch> scratch_;
  std::vector<int64_t> angle_starts_;  // per table, and their end
  PreparedRows::Needs needs_[kParts];
  std::vector<PreparedRows> prepared_;  // per part
  // Of the part that is computed: [rows, reduced_size_], a x of its changes.
  std::vector<float> reduced_;
  std::vector<Step> steps_;
  std::vector<PhasedJob::Phase> phases_;

  // Of the pass.
  std::span<DecoderInput> inputs_;
  Range range_{0, 0};
  bool whole_ = true;  // embedding, layers and head, not one layer
  LogitRows wanted_ = LogitRows::all;
  float* out_ = nullptr;
  std::vector<Row> rows_;
  // Rows that get logits, and where those go.
  std::vector<std::pair<int, float*>> out_rows_;
  int64_t tiles_ = 0;   // of rows per input; 0: every row by itself, in splits
  int64_t splits_ = 0;  // of the longest row
  int reduced_size_ = 0;  // 0: no row has changes
  // One row per sequence: attention rotates queries and keys as it needs them,
  // which saves a phase.
  bool places_itself_ = false;
  std::vector<float> cosines_;            // [rows, angles()]
  std::vector<float> sines_;              // [rows, angles()]
  std::vector<float> x_;                  // [rows, E]
  std::vector<float> branch_;             // [rows, E]: not yet added to x
  std::vector<float> queries_;            // [rows, heads * D]
  std::vector<float> keys_;               // [rows, kv_heads * D]
  std::vector<float> values_;             // [rows, kv_heads * D]
  std::vector<float> attention_rows_;     // [rows, heads * D]
  std::vector<float> inner_;              // [rows, I]
  std::vector<SplitState> split_states_;  // [rows, kv_heads, splits, group]
  std::vector<float> split_outs_;         // the same, D numbers each
};

// How a program keeps keys and values.
KvShape kv_shape(const DecoderWeights& weights, const Selection& selection);

}  // namespace mlxx::kernels
