// Products of oneDNN, through its C interface (version 3). Its thread count is 1 in every call of
// ours: what it would share out with OpenMP, and wait for, the driver shares out.
#include "cc/ops/linear/onednn/onednn_rows.h"

// Tools that compile every file of the tree find nothing to compile without the library.
#if __has_include("oneapi/dnnl/dnnl.h")

#include <omp.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "cc/base/status.h"
#include "cc/ops/linear/onednn/block_driver.h"
#include "cc/ops/linear/onednn/block_library.h"
#include "cc/ops/linear/onednn/round_row.h"
#include "oneapi/dnnl/dnnl.h"

namespace pagemill::ops::linear {
namespace {

// Products that a thread keeps: 24 heights of each shape of block.
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

// The object that create(&object, ...) makes; null where it refuses.
template <class Object, class Create, class... Arguments>
Object TryToMake(const Create& create, const Arguments&... arguments) {
  typename Object::pointer object = nullptr;
  return Object(create(&object, arguments...) == dnnl_success ? object : nullptr);
}

template <class Object, class Create, class... Arguments>
Object Make(const Create& create, const Arguments&... arguments) {
  Object object = TryToMake<Object>(create, arguments...);
  PM_CHECK(object != nullptr);
  return object;
}

// The calling thread has OpenMP to itself: others of the process may want more threads of it.
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

// Of the product of `height` rows; null where oneDNN has none.
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

// The implementation that keeps obligation 1; "gemm:jit" does not.
bool IsBlocked(std::string_view implementation) { return implementation.starts_with("brg"); }

// The order of packed weights: what oneDNN likes best for the highest product. Null where that is
// not its blocked implementation, or weights would not fit.
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
  PM_CHECK(dnnl_memory_set_data_handle(memory.get(), const_cast<void*>(data)) == dnnl_success);
}

// The product of one shape and height, compiled.
class Product {
 public:
  Product(dnnl_engine_t engine, BlockShape shape, int64_t height) {
    const Layout weights = LayoutOf(engine, shape);
    PM_CHECK(weights != nullptr);
    const Description description = Describe(engine, shape, height, weights.get());
    PM_CHECK(description != nullptr && IsBlocked(ImplementationOf(description)));
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
    PM_CHECK(dnnl_primitive_execute(primitive_.get(), stream, 3, arguments) == dnnl_success);
  }

 private:
  Primitive primitive_;
  Memory x_, weights_, y_;
};

// What one thread has compiled. A row has no state of its own to keep it in, and oneDNN's objects
// are not for several threads at once; code is shared between threads by oneDNN's own cache.
// Nothing depends on what is in it but time: 0.2 ms for the first product of a shape and height.
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

 private:
  Engine engine_ = Cpu();
  Stream stream_ = Make<Stream>(dnnl_stream_create, engine_.get(),
                                static_cast<unsigned>(dnnl_stream_default_flags));
  std::map<std::pair<BlockShape, int64_t>, Product> products_;
};

void Multiply(const BlockProduct& product) {
  const OneThread alone;
  thread_local Products products;
  products.Run(product);
}

void Pack(BlockShape shape, const uint16_t* rows, std::byte* packed) {
  const OneThread alone;
  const Engine engine = Cpu();
  const Stream stream = Make<Stream>(dnnl_stream_create, engine.get(),
                                     static_cast<unsigned>(dnnl_stream_default_flags));
  // The rows of W are the columns of what x is multiplied with.
  const dnnl_dims_t dims = {shape.k, shape.rows}, strides = {1, shape.k};
  const Layout stored =
      Make<Layout>(dnnl_memory_desc_create_with_strides, 2, dims, dnnl_bf16, strides);
  const Layout blocked = LayoutOf(engine.get(), shape);
  PM_CHECK(blocked != nullptr);
  const Description description = Make<Description>(
      dnnl_reorder_primitive_desc_create, stored.get(), engine.get(), blocked.get(), engine.get(),
      static_cast<const_dnnl_primitive_attr_t>(nullptr));
  const Primitive reorder = Make<Primitive>(dnnl_primitive_create, description.get());
  const Memory from = MemoryOf(stored.get(), engine.get(), rows);
  const Memory to = MemoryOf(blocked.get(), engine.get(), packed);
  const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, from.get()}, {DNNL_ARG_TO, to.get()}};
  PM_CHECK(dnnl_primitive_execute(reorder.get(), stream.get(), 2, arguments) == dnnl_success);
}

bool Supports(const device::Capabilities& caps, BlockShape shape) {
  // Of round_row.h, and of the implementations that have been measured.
  if (!caps.avx512 || !caps.avx512_bf16) return false;
  const OneThread alone;
  const Engine engine = Cpu();
  const Layout weights = LayoutOf(engine.get(), shape);
  if (weights == nullptr) return false;
  const Description single = Describe(engine.get(), shape, 1, weights.get());
  return single != nullptr && IsBlocked(ImplementationOf(single));
}

// The order of weights is oneDNN's own business, so its name has all that may decide it.
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

std::span<const KernelRow> OnednnRows() {
  // Below "avx512_bf16" and "amx_bf16", which measured as fast or faster.
  static const KernelRow rows[] = {BlockRow<Library>("onednn", 34)};
  return rows;
}

}  // namespace pagemill::ops::linear

#endif  // __has_include
