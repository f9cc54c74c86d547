#include "cc/program/testing/tiny_llama.h"

#include <cmath>
#include <cstddef>
#include <map>
#include <vector>

#include "cc/ops/batch_view.h"
#include "cc/ops/conformance.h"
#include "cc/program/weights/weights.h"

namespace pagemill::program::testing {
namespace {

// Collects a program's lines while its ops are written in order.
class Writer {
 public:
  explicit Writer(const TinyLlamaOptions& options) : options_(options), random_(options.seed) {}

  std::string Matrix(int64_t rows, int64_t columns) {
    const float scale = 1.5f / std::sqrt(static_cast<float>(columns));
    return Weight(options_.weight_dtype, {rows, columns}, -scale, scale);
  }
  // This rank's rows or columns of a matrix; all of them on a single rank.
  std::string MatrixRows(int64_t rows, int64_t columns) {
    return RowsOf(Matrix(rows, columns), rows, columns);
  }
  std::string MatrixColumns(int64_t rows, int64_t columns) {
    const std::string whole = Matrix(rows, columns);
    if (options_.ranks == 1) return whole;
    const int64_t part = columns / options_.ranks;
    return Declare(options_.weight_dtype, std::to_string(rows) + "," + std::to_string(part),
                   offsets_.at(whole) + RowBytes(options_.weight_dtype, part * options_.rank),
                   " " + std::to_string(RowBytes(options_.weight_dtype, columns)));
  }
  std::string RowsOf(const std::string& whole, int64_t rows, int64_t columns) {
    if (options_.ranks == 1) return whole;
    const int64_t begin = rows * options_.rank / options_.ranks;
    const int64_t end = rows * (options_.rank + 1) / options_.ranks;
    return Declare(options_.weight_dtype,
                   std::to_string(end - begin) + "," + std::to_string(columns),
                   offsets_.at(whole) + RowBytes(options_.weight_dtype, columns) * begin);
  }
  std::string Norm() { return Weight(DType::kF32, {options_.hidden}, 0.5f, 1.5f); }
  std::string Frequencies(int32_t head_dim) {
    ops::conformance::TestTensor tensor(DType::kF32, {head_dim / 2});
    std::vector<float> values;
    for (int32_t i = 0; i < head_dim / 2; ++i) {
      values.push_back(
          std::pow(100.0f, -2.0f * static_cast<float>(i) / static_cast<float>(head_dim)));
    }
    tensor.Set(values);
    if (options_.media) return GridFrequencies(values);
    return AddWeight(tensor, DType::kF32, std::to_string(head_dim / 2));
  }
  std::string Cache(int32_t head_dim, int32_t window) {
    const std::string name = NextName("kv");
    declarations_ += "cache " + name + (window > 0 ? " sliding kv kv " : " full kv kv ") +
                     std::to_string(options_.kv_heads / options_.ranks) + "," +
                     std::to_string(head_dim) + "\n";
    return name;
  }
  void Group(const std::string& line) { declarations_ += "group " + line + "\n"; }
  std::string Value(const std::string& shape, const std::string& dtype = "act") {
    const std::string name = NextName("v");
    declarations_ += "value " + name + " " + dtype + " " + shape + "\n";
    return name;
  }
  void Input(const std::string& name, const std::string& shape, const char* dtype = "i32") {
    declarations_ += "input " + name + " " + dtype + " " + shape + "\n";
  }
  // Writes an op with one output of `shape` and returns its name.
  std::string Op(const std::string& op, const std::string& operands, const std::string& shape,
                 const std::string& attributes = "") {
    const std::string output = Value(shape);
    Line(op, operands, output, attributes);
    return output;
  }
  // The sum over all ranks.
  std::string Reduce(const std::string& x, const std::string& shape) {
    if (options_.ranks == 1) return x;
    return Op("all_reduce", x, shape, "axis=0 ranks=" + std::to_string(options_.ranks));
  }
  void Line(const std::string& op, const std::string& operands, const std::string& outputs,
            const std::string& attributes = "") {
    ops_ += "op " + op + " " + operands + " ->" + (outputs.empty() ? "" : " " + outputs) +
            (attributes.empty() ? "" : " " + attributes) + "\n";
  }
  std::string Finish(const std::string& output) const {
    return "pagemill-program 3\nfile 0 @\n" + declarations_ + ops_ + "output " + output + "\n" +
           "constants " + std::to_string(hex_.size() / 2) + "\n" + hex_ + "\n";
  }

 private:
  std::string GridFrequencies(const std::vector<float>& values) {
    const auto pairs = static_cast<int64_t>(values.size());
    ops::conformance::TestTensor tensor(DType::kF32, {ops::kGridDims, pairs});
    std::vector<float> by_dim;
    for (size_t d = 0; d < ops::kGridDims; ++d) {
      for (size_t i = 0; i < values.size(); ++i) {
        by_dim.push_back(i % ops::kGridDims == d ? values[i] : 0.0f);
      }
    }
    tensor.Set(by_dim);
    return AddWeight(tensor, DType::kF32, "3," + std::to_string(pairs));
  }

  // A weight in the constants. `step`: " " and the bytes from one row to the next, if others lie
  // between.
  std::string Declare(DType dtype, const std::string& shape, int64_t offset,
                      const std::string& step = "") {
    const std::string name = NextName("w");
    declarations_ += "weight " + name + " " + std::string(Info(dtype).name) + " " + shape + " 0 " +
                     std::to_string(offset) + step + "\n";
    offsets_[name] = offset;
    return name;
  }

  std::string NextName(const std::string& prefix) { return prefix + std::to_string(count_++); }

  std::string Weight(DType dtype, std::vector<int64_t> dims, float low, float high) {
    ops::conformance::TestTensor tensor =
        dims.size() == 1 ? ops::conformance::TestTensor(dtype, {dims[0]})
                         : ops::conformance::TestTensor(dtype, {dims[0], dims[1]});
    tensor.FillUniform(random_, low, high);
    std::string shape = std::to_string(dims[0]);
    if (dims.size() > 1) shape += "," + std::to_string(dims[1]);
    return AddWeight(tensor, dtype, shape);
  }

  std::string AddWeight(const ops::conformance::TestTensor& tensor, DType dtype,
                        const std::string& shape) {
    const std::vector<uint8_t> bytes = tensor.Bytes();
    std::vector<std::byte> little_endian(bytes.size());
    CopyElements(std::as_bytes(std::span(bytes)),
                 IsBlockFormat(dtype) ? 1 : Info(dtype).block_bytes, little_endian);
    const std::string name = Declare(dtype, shape, static_cast<int64_t>(hex_.size() / 2));
    size_t end = hex_.size();
    hex_.resize(end + 2 * little_endian.size());
    for (std::byte b : little_endian) {
      hex_[end++] = "0123456789abcdef"[static_cast<int>(b) >> 4];
      hex_[end++] = "0123456789abcdef"[static_cast<int>(b) & 15];
    }
    return name;
  }

  const TinyLlamaOptions& options_;
  ops::conformance::Random random_;
  int32_t count_ = 0;
  std::string declarations_, ops_, hex_;
  std::map<std::string, int64_t> offsets_;  // of weights, in the constants
};

// Attention of one layer: from the normalized hidden state to what is added to the residual.
std::string Attention(const TinyLlamaOptions& options, Writer& w, const std::string& x,
                      const std::string& frequencies, int32_t window) {
  const int32_t head_dim = options.hidden / options.heads;
  const std::string dim = "," + std::to_string(head_dim);
  const std::string hidden = "tokens," + std::to_string(options.hidden);
  const std::string q_shape = "tokens," + std::to_string(options.heads / options.ranks) + dim;
  const std::string kv_shape = "tokens," + std::to_string(options.kv_heads / options.ranks) + dim;
  const int64_t kv_columns = int64_t{options.kv_heads} * head_dim;
  const std::string q =
      w.Op("linear", x + "," + w.MatrixRows(options.hidden, options.hidden) + ",-", q_shape);
  const std::string k =
      w.Op("linear", x + "," + w.MatrixRows(kv_columns, options.hidden) + ",-", kv_shape);
  const std::string v =
      w.Op("linear", x + "," + w.MatrixRows(kv_columns, options.hidden) + ",-", kv_shape);
  const std::string rotated_q = w.Value(q_shape), rotated_k = w.Value(kv_shape);
  const std::string positions = options.media ? ",grid_positions," : ",positions,";
  w.Line("rotary", q + "," + k + positions + frequencies, rotated_q + "," + rotated_k);
  const std::string cache = w.Cache(head_dim, window);
  w.Line("kv_write", rotated_k + "," + v + "," + cache, "");
  const std::string scale = std::to_string(1.0 / std::sqrt(static_cast<double>(head_dim)));
  const std::string y = w.Op("paged_attention", rotated_q + "," + cache, q_shape,
                             "scale=" + scale + " window=" + std::to_string(window));
  const std::string output =
      w.Op("linear", y + "," + w.MatrixColumns(options.hidden, options.hidden) + ",-", hidden);
  return w.Reduce(output, hidden);
}

std::string Mlp(const TinyLlamaOptions& options, Writer& w, const std::string& x) {
  const std::string hidden = "tokens," + std::to_string(options.hidden);
  const std::string ffn = "tokens," + std::to_string(options.ffn / options.ranks);
  const std::string gate =
      w.Op("linear", x + "," + w.MatrixRows(options.ffn, options.hidden) + ",-", ffn);
  const std::string up =
      w.Op("linear", x + "," + w.MatrixRows(options.ffn, options.hidden) + ",-", ffn);
  const std::string gated = w.Op("gated_activation", gate + "," + up, ffn, "kind=0");
  const std::string output =
      w.Op("linear", gated + "," + w.MatrixColumns(options.hidden, options.ffn) + ",-", hidden);
  return w.Reduce(output, hidden);
}

}  // namespace

std::string TinyLlamaText(const TinyLlamaOptions& options) {
  Writer w(options);
  w.Group("full full");
  if (options.window > 0 && options.layers > 1) {
    w.Group("sliding sliding_window window=" + std::to_string(options.window));
  }
  w.Input("token_ids", "tokens");
  w.Input("positions", "tokens");
  if (!options.pooled) w.Input("logits_rows", "logits_rows");
  if (options.media) {
    w.Input("media_rows", "media_rows");
    w.Input("grid_positions", "tokens,3");
    w.Input("embeddings", "media_rows," + std::to_string(options.hidden), "act");
  }
  const std::string hidden = "tokens," + std::to_string(options.hidden);
  const std::string frequencies = w.Frequencies(options.hidden / options.heads);
  const std::string table = w.Matrix(options.vocab, options.hidden);
  std::string x = w.Op("embedding", "token_ids," + table, hidden, "scale=4");
  if (options.media) x = w.Op("scatter_rows", x + ",embeddings,media_rows", hidden);
  const auto norm = [&] { return w.Op("rms_norm", x + "," + w.Norm(), hidden, "eps=1e-05"); };
  for (int32_t layer = 0; layer < options.layers; ++layer) {
    const int32_t window = layer % 2 == 1 ? options.window : 0;
    const std::string attended = Attention(options, w, norm(), frequencies, window);
    x = w.Op("add", x + "," + attended, hidden);
    const std::string mixed = Mlp(options, w, norm());
    x = w.Op("add", x + "," + mixed, hidden);
  }
  x = norm();
  if (options.pooled) {
    const std::string pooled = w.Value("requests," + std::to_string(options.hidden), "f32");
    w.Line("pool", x, pooled, "kind=0 normalize=1");
    return w.Finish("pooled " + pooled);
  }
  const std::string last =
      w.Op("select_rows", x + ",logits_rows", "logits_rows," + std::to_string(options.hidden));
  const std::string logits = w.Value("logits_rows," + std::to_string(options.vocab), "f32");
  const std::string head = w.RowsOf(table, options.vocab, options.hidden);
  if (options.ranks == 1) {
    w.Line("linear", last + "," + head + ",-", logits);
  } else {
    const int64_t first = int64_t{options.vocab} * options.rank / options.ranks;
    const int64_t end = int64_t{options.vocab} * (options.rank + 1) / options.ranks;
    const std::string part = w.Value("logits_rows," + std::to_string(end - first), "f32");
    w.Line("linear", last + "," + head + ",-", part);
    w.Line("all_gather", part, logits,
           "axis=0 ranks=" + std::to_string(options.ranks) +
               " rank=" + std::to_string(options.rank));
  }
  return w.Finish("logits " + logits);
}

}  // namespace pagemill::program::testing
