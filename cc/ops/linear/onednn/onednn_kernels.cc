// Products of oneDNN, through its C interface (version 3). oneDNN runs on one thread in every call,
// since the driver distributes the work, not OpenMP.
#include "cc/ops/linear/onednn/onednn_kernels.h"

#include <omp.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/ops/linear/onednn/block_driver.h"
#include "cc/ops/linear/onednn/block_library.h"
#include "cc/ops/linear/onednn/round_row.h"
#include "oneapi/dnnl/dnnl.h"

namespace pagemill::ops::linear {
namespace {

// Compiled products that a thread keeps: 23 heights of each block shape.
constexpr size_t kMaxProducts = 768;

// oneDNN's objects, destroyed with their owner.
template <auto kDestroy>
struct Destroy {
  template <typename T>
  void operator()(T* object) const {
    kDestroy(object);
  }
};
template <typename T, auto kDestroy>
using Owned = std::unique_ptr<std::remove_pointer_t<T>, Destroy<kDestroy>>;
using Engine = Owned<dnnl_engine_t, dnnl_engine_destroy>;
using Stream = Owned<dnnl_stream_t, dnnl_stream_destroy>;
using Layout = Owned<dnnl_memory_desc_t, dnnl_memory_desc_destroy>;
using Memory = Owned<dnnl_memory_t, dnnl_memory_destroy>;
using Description = Owned<dnnl_primitive_desc_t, dnnl_primitive_desc_destroy>;
using Primitive = Owned<dnnl_primitive_t, dnnl_primitive_destroy>;

// The object that create(&object, ...) creates; null if it fails.
template <class Object, class Create, class... Arguments>
Object TryToMake(const Create& create, const Arguments&... arguments) {
  typename Object::pointer object = nullptr;
  return Object(create(&object, arguments...) == dnnl_success ? object : nullptr);
}

template <class Object, class Create, class... Arguments>
Object Make(const Create& create, const Arguments&... arguments) {
  Object object = TryToMake<Object>(create, arguments...);
  PAGEMILL_CHECK(object != nullptr);
  return object;
}

// Limits OpenMP to one thread on the calling thread only: other threads of the process may use
// more.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) {
    if (before_ != 1) omp_set_num_threads(1);
  }
  ~OneThread() {
    if (before_ != 1) omp_set_num_threads(before_);
  }
  OneThread(const OneThread&) = delete;

 private:
  const int before_;
};

Layout RowMajor(int64_t rows, int64_t columns, dnnl_data_type_t dtype) {
  const dnnl_dims_t dims = {rows, columns}, strides = {columns, 1};
  return Make<Layout>(dnnl_memory_desc_create_with_strides, 2, dims, dtype, strides);
}

// The description of the product of `height` rows; null if oneDNN does not have one.
Description Describe(dnnl_engine_t engine, BlockShape shape, int64_t height,
                     const_dnnl_memory_desc_t weights) {
  const Layout x = RowMajor(height, shape.k, dnnl_bf16), y = RowMajor(height, shape.rows, dnnl_f32);
  return TryToMake<Description>(dnnl_matmul_primitive_desc_create, engine, x.get(), weights,
                                static_cast<const_dnnl_memory_desc_t>(nullptr), y.get(),
                                static_cast<const_dnnl_primitive_attr_t>(nullptr));
}

std::string_view ImplementationOf(const Description& description) {
  const char* name = nullptr;
  const dnnl_status_t status =
      dnnl_primitive_desc_query(description.get(), dnnl_query_impl_info_str, 0, &name);
  return status == dnnl_success && name != nullptr ? name : "";
}

// True for implementations that read packed weights; others give other bits for each height.
bool IsBlocked(std::string_view implementation) { return implementation.starts_with("brg"); }

// The layout of packed weights: the one that oneDNN prefers for the largest height. Null if that is
// not its blocked implementation, or the weights would not fit.
Layout LayoutOf(dnnl_engine_t engine, BlockShape shape) {
  const dnnl_dims_t dims = {shape.k, shape.rows};
  const Layout any =
      Make<Layout>(dnnl_memory_desc_create_with_tag, 2, dims, dnnl_bf16, dnnl_format_tag_any);
  const Description product = Describe(engine, shape, kMaxHeight, any.get());
  if (product == nullptr || !IsBlocked(ImplementationOf(product))) return nullptr;
  const const_dnnl_memory_desc_t chosen =
      dnnl_primitive_desc_query_md(product.get(), dnnl_query_weights_md, 0);
  if (chosen == nullptr || dnnl_memory_desc_get_size(chosen) != static_cast<size_t>(shape.bytes()))
    return nullptr;
  return Make<Layout>(dnnl_memory_desc_clone, chosen);
}

Engine Cpu() { return Make<Engine>(dnnl_engine_create, dnnl_cpu, size_t{0}); }

Memory MemoryOf(const_dnnl_memory_desc_t layout, dnnl_engine_t engine, const void* data) {
  return Make<Memory>(dnnl_memory_create, layout, engine, const_cast<void*>(data));
}

void Place(const Memory& memory, const void* data) {
  PAGEMILL_CHECK(dnnl_memory_set_data_handle(memory.get(), const_cast<void*>(data)) ==
                 dnnl_success);
}

// The product of one shape and height, compiled.
class Product {
 public:
  Product(dnnl_engine_t engine, BlockShape shape, int64_t height) {
    const Layout weights = LayoutOf(engine, shape);
    PAGEMILL_CHECK(weights != nullptr);
    const Description description = Describe(engine, shape, height, weights.get());
    PAGEMILL_CHECK(description != nullptr && IsBlocked(ImplementationOf(description)));
    primitive_ = Make<Primitive>(dnnl_primitive_create, description.get());
    x_ = MemoryOf(RowMajor(height, shape.k, dnnl_bf16).get(), engine, DNNL_MEMORY_NONE);
    weights_ = MemoryOf(weights.get(), engine, DNNL_MEMORY_NONE);
    y_ = MemoryOf(RowMajor(height, shape.rows, dnnl_f32).get(), engine, DNNL_MEMORY_NONE);
  }

  void Run(const BlockProduct& product, dnnl_stream_t stream) const {
    Place(x_, product.x);
    Place(weights_, product.packed);
    Place(y_, product.y);
    const dnnl_exec_arg_t arguments[] = {
        {DNNL_ARG_SRC, x_.get()}, {DNNL_ARG_WEIGHTS, weights_.get()}, {DNNL_ARG_DST, y_.get()}};
    PAGEMILL_CHECK(dnnl_primitive_execute(primitive_.get(), stream, 3, arguments) == dnnl_success);
  }

 private:
  Primitive primitive_;
  Memory x_, weights_, y_;
};

int64_t NextHeight(int64_t height) {
  return height < kHeightStep ? height + 1 : height + kHeightStep;
}

// True if oneDNN has a blocked implementation for products of every height.
bool HasProducts(dnnl_engine_t engine, BlockShape shape) {
  const Layout weights = LayoutOf(engine, shape);
  if (weights == nullptr) return false;
  for (int64_t height = 1; height <= kMaxHeight; height = NextHeight(height)) {
    const Description product = Describe(engine, shape, height, weights.get());
    if (product == nullptr || !IsBlocked(ImplementationOf(product))) return false;
  }
  return true;
}

// Cache of one thread: compiled products and supported shapes. It is thread-local because kernels
// have no state and oneDNN's objects are not thread-safe; oneDNN's own cache shares the compiled
// code. The contents only affect speed.
class Products {
 public:
  void Run(const BlockProduct& product) {
    const auto key = std::pair(product.shape, product.height);
    auto found = products_.find(key);
    if (found == products_.end()) {
      if (products_.size() == kMaxProducts) products_.clear();
      found = products_.try_emplace(key, engine_.get(), product.shape, product.height).first;
    }
    found->second.Run(product, stream_.get());
  }

  bool Supports(BlockShape shape) {
    const auto found = supported_.find(shape);
    if (found != supported_.end()) return found->second;
    if (supported_.size() == kMaxProducts) supported_.clear();
    return supported_[shape] = HasProducts(engine_.get(), shape) && SameBitsInEveryHeight(shape);
  }

 private:
  bool SameBitsInEveryHeight(BlockShape shape);

  Engine engine_ = Cpu();
  Stream stream_ = Make<Stream>(dnnl_stream_create, engine_.get(),
                                static_cast<unsigned>(dnnl_stream_default_flags));
  std::map<std::pair<BlockShape, int64_t>, Product> products_;
  std::map<BlockShape, bool> supported_;
};

Products& OfThisThread() {
  thread_local Products products;
  return products;
}

void Multiply(const BlockProduct& product) {
  const OneThread alone;
  OfThisThread().Run(product);
}

void Pack(BlockShape shape, const uint16_t* rows, std::byte* packed) {
  const OneThread alone;
  const Engine engine = Cpu();
  const Stream stream = Make<Stream>(dnnl_stream_create, engine.get(),
                                     static_cast<unsigned>(dnnl_stream_default_flags));
  // oneDNN multiplies x with W^T, so the rows of W are columns.
  const dnnl_dims_t dims = {shape.k, shape.rows}, strides = {1, shape.k};
  const Layout stored =
      Make<Layout>(dnnl_memory_desc_create_with_strides, 2, dims, dnnl_bf16, strides);
  const Layout blocked = LayoutOf(engine.get(), shape);
  PAGEMILL_CHECK(blocked != nullptr);
  const Description description = Make<Description>(
      dnnl_reorder_primitive_desc_create, stored.get(), engine.get(), blocked.get(), engine.get(),
      static_cast<const_dnnl_primitive_attr_t>(nullptr));
  const Primitive reorder = Make<Primitive>(dnnl_primitive_create, description.get());
  const Memory from = MemoryOf(stored.get(), engine.get(), rows);
  const Memory to = MemoryOf(blocked.get(), engine.get(), packed);
  const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, from.get()}, {DNNL_ARG_TO, to.get()}};
  PAGEMILL_CHECK(dnnl_primitive_execute(reorder.get(), stream.get(), 2, arguments) == dnnl_success);
}

// Room for `count` numbers at a 64-byte boundary of `memory`.
template <typename T>
T* AlignedNumbers(std::vector<T>& memory, int64_t count) {
  memory.resize(count + 64);
  const size_t past = reinterpret_cast<uintptr_t>(memory.data()) % 64;
  return memory.data() + (64 - past) % 64 / sizeof(T);
}

// Signs and magnitudes vary, so that sums in another order have other bits.
uint16_t* RandomBf16(std::vector<uint16_t>& memory, int64_t count) {
  uint16_t* const numbers = AlignedNumbers(memory, count);
  uint32_t state = 1;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 1664525 + 1013904223;  // Numerical Recipes
    // 0.5 to 8, of either sign.
    numbers[i] = static_cast<uint16_t>(0x3f00 + (state >> 16 & 0x81ff));
  }
  return numbers;
}

bool Products::SameBitsInEveryHeight(BlockShape shape) {
  std::vector<uint16_t> x_memory, w_memory, packed_memory;
  std::vector<float> y_memory, expected;
  const uint16_t* const x = RandomBf16(x_memory, kMaxHeight * shape.k);
  uint16_t* const packed = AlignedNumbers(packed_memory, shape.rows * shape.k);
  Pack(shape, RandomBf16(w_memory, shape.rows * shape.k), reinterpret_cast<std::byte*>(packed));
  float* const y = AlignedNumbers(y_memory, kMaxHeight * shape.rows);
  for (int64_t height = 1; height <= kMaxHeight; height = NextHeight(height)) {
    Run({shape, height, x, reinterpret_cast<const std::byte*>(packed), y});
    // The rows of each height include those of the height before.
    const size_t known = expected.size() * sizeof(float);
    if (known > 0 && std::memcmp(y, expected.data(), known) != 0) return false;
    expected.assign(y, y + height * shape.rows);
  }
  return true;
}

// Takes about 5 ms for the first matrix of a shape, since all products are compiled.
bool Supports(const device::Capabilities& caps, BlockShape shape) {
  // Required by round_row.h and by the implementations that have been measured.
  if (!caps.cpu.avx512 || !caps.cpu.avx512_bf16) return false;
  const OneThread alone;
  return OfThisThread().Supports(shape);
}

// oneDNN chooses the layout of weights, so the name includes everything that the choice may depend
// on.
const std::string& LayoutName() {
  static const std::string name = [] {
    const dnnl_version_t& version = *dnnl_version();
    return "oneDNN " + std::to_string(version.major) + "." + std::to_string(version.minor) + "." +
           std::to_string(version.patch) + " " + version.hash + " isa " +
           std::to_string(static_cast<int>(dnnl_get_effective_cpu_isa())) + ", blocks version 1";
  }();
  return name;
}

const BlockLibrary& Library() {
  static const BlockLibrary library = {.layout = LayoutName(),
                                       .supports = Supports,
                                       .pack = Pack,
                                       .round = RoundRowAvx512,
                                       .multiply = Multiply};
  return library;
}

}  // namespace

std::span<const Kernel> OnednnKernels() {
  // Below "avx512_bf16" and "amx_bf16", which measured as fast or faster.
  static const Kernel kernels[] = {BlockKernel<Library>("onednn", 34)};
  return rows;
}

}  // namespace pagemill::ops::linear
