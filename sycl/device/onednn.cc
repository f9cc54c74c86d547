#include "sycl/device/onednn.h"

#include <dlfcn.h>

#include <string>
#include <vector>

namespace pagemill::sycl {
namespace {

// Constants of the library.
constexpr int kF16 = 1;  // types of elements
constexpr int kBf16 = 2;
constexpr int kF32 = 3;
constexpr int kCallersScratchpad = 1;
constexpr int kUsm = 0;  // kind of memory

// An operand of a product: its number among arguments, and what a description says of its layout.
struct Operand {
  int argument, layout, index;
};
constexpr Operand kX = {1, 129, 0};
constexpr Operand kY = {17, 133, 0};
constexpr Operand kW = {33, 131, 0};
constexpr Operand kBias = {41, 131, 1};
constexpr Operand kScratchpad = {80, 136, 0};

constexpr char kName[] = "libdnnl.so.3";
// What it depends on. As pip installs it, it does not know where these are. The object that this is
// linked into does (DT_RPATH), and what is loaded is found by its name.
constexpr const char* kNeeds[] = {"libtbb.so.12", "libintlc.so.5", "libimf.so", "libsvml.so"};

Status ToStatus(int error, const char* doing) {
  if (error == 0) return OkStatus();
  return Internal(std::string("oneDNN failed ") + doing + ": error " + std::to_string(error) +
                  " (--deterministic disables it)");
}

int TypeOf(DType type) {
  return type == DType::kF32 ? kF32 : type == DType::kBF16 ? kBf16 : kF16;
}

StatusOr<OnednnLibrary> Load() {
  // One that is missing is one that this oneDNN finds by itself.
  for (const char* name : kNeeds) (void)dlopen(name, RTLD_NOW | RTLD_LOCAL);
  void* const file = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (file == nullptr) {
    return FailedPrecondition(std::string("oneDNN cannot be opened: ") + dlerror() +
                              " (pip install onednn)");
  }
  OnednnLibrary library = {};
  const char* missing = nullptr;
  const auto find = [&](const char* function_name, auto* function) {
    void* const found = dlsym(file, function_name);
    if (found == nullptr) missing = function_name;
    *reinterpret_cast<void**>(function) = found;
  };
  find("dnnl_sycl_interop_engine_create", &library.create_engine);
  find("dnnl_engine_destroy", &library.destroy_engine);
  find("dnnl_sycl_interop_stream_create", &library.create_stream);
  find("dnnl_stream_destroy", &library.destroy_stream);
  find("dnnl_primitive_attr_create", &library.create_attributes);
  find("dnnl_primitive_attr_destroy", &library.destroy_attributes);
  find("dnnl_primitive_attr_set_scratchpad_mode", &library.set_scratchpad_mode);
  find("dnnl_memory_desc_create_with_strides", &library.create_layout);
  find("dnnl_memory_desc_destroy", &library.destroy_layout);
  find("dnnl_memory_desc_get_size", &library.bytes_of_layout);
  find("dnnl_matmul_primitive_desc_create", &library.describe_product);
  find("dnnl_primitive_desc_destroy", &library.destroy_description);
  find("dnnl_primitive_desc_query_md", &library.layout_of);
  find("dnnl_primitive_create", &library.create_product);
  find("dnnl_primitive_destroy", &library.destroy_product);
  find("dnnl_sycl_interop_memory_create", &library.create_memory);
  find("dnnl_memory_destroy", &library.destroy_memory);
  find("dnnl_primitive_execute", &library.execute);
  if (missing != nullptr) {
    return FailedPrecondition(std::string(kName) + " has no " + missing +
                              ": pip install --upgrade onednn");
  }
  // Objects of the runtime are passed to the library, so both must have the same one.
  constexpr char kOfRuntime[] = "__sycl_register_lib";
  void* const of_runtime = dlsym(RTLD_DEFAULT, kOfRuntime);
  if (of_runtime == nullptr || dlsym(file, kOfRuntime) != of_runtime) {
    return FailedPrecondition(std::string(kName) +
                              " is for another version of the SYCL runtime: pip install onednn");
  }
  return library;
}

}  // namespace

StatusOr<OnednnLibrary> OnednnLibrary::Open() {
  static const StatusOr<OnednnLibrary> loaded = Load();
  return loaded;
}

StatusOr<std::unique_ptr<Onednn>> Onednn::Create(const OnednnLibrary& library, const void* device,
                                                 const void* context, void* queue) {
  void* address = nullptr;
  const auto status = [&](int error) { return ToStatus(error, "to be prepared"); };
  PAGEMILL_RETURN_IF_ERROR(status(library.create_engine(&address, device, context)));
  Owned engine(address, library.destroy_engine);
  PAGEMILL_RETURN_IF_ERROR(status(library.create_stream(&address, engine.get(), queue)));
  Owned stream(address, library.destroy_stream);
  PAGEMILL_RETURN_IF_ERROR(status(library.create_attributes(&address)));
  Owned attributes(address, library.destroy_attributes);
  PAGEMILL_RETURN_IF_ERROR(
      status(library.set_scratchpad_mode(attributes.get(), kCallersScratchpad)));
  return std::unique_ptr<Onednn>(
      new Onednn(library, std::move(engine), std::move(stream), std::move(attributes)));
}

StatusOr<Onednn::Owned> Onednn::Layout(DType type, int64_t rows, int64_t columns,
                                       int64_t row_stride, int64_t column_stride) const {
  const int64_t sizes[] = {rows, columns}, strides[] = {row_stride, column_stride};
  void* layout = nullptr;
  PAGEMILL_RETURN_IF_ERROR(
      ToStatus(library_.create_layout(&layout, /*rank=*/2, sizes, TypeOf(type), strides),
               "to describe a matrix"));
  return Owned(layout, library_.destroy_layout);
}

StatusOr<Onednn::Prepared> Onednn::Prepare(const MatrixProduct& product) const {
  PAGEMILL_ASSIGN_OR_RETURN(
      const Owned x, Layout(product.type, product.rows, product.columns, product.x_stride, 1));
  // The library's W is that of y = x W.
  PAGEMILL_ASSIGN_OR_RETURN(
      const Owned w, Layout(product.type, product.columns, product.outputs, 1, product.w_stride));
  PAGEMILL_ASSIGN_OR_RETURN(const Owned bias,
                            Layout(DType::kF32, 1, product.outputs, product.outputs, 1));
  PAGEMILL_ASSIGN_OR_RETURN(const Owned y,
                            Layout(product.f32_result ? DType::kF32 : product.type, product.rows,
                                   product.outputs, product.y_stride, 1));
  Prepared prepared = {Owned(nullptr, library_.destroy_description),
                       Owned(nullptr, library_.destroy_product)};
  // A library that fails from here on fails for these sizes alone, and other kernels multiply.
  void* address = nullptr;
  if (library_.describe_product(&address, engine_.get(), x.get(), w.get(),
                                product.bias == nullptr ? nullptr : bias.get(), y.get(),
                                attributes_.get()) != 0) {
    return prepared;
  }
  prepared.description.reset(address);
  if (ScratchpadBytes(prepared) > kOnednnWorkspaceBytes) return prepared;
  void* made = nullptr;
  if (library_.create_product(&made, address) == 0) prepared.product.reset(made);
  return prepared;
}

int64_t Onednn::ScratchpadBytes(const Prepared& prepared) const {
  return static_cast<int64_t>(library_.bytes_of_layout(
      library_.layout_of(prepared.description.get(), kScratchpad.layout, kScratchpad.index)));
}

Status Onednn::Execute(const Prepared& prepared, const MatrixProduct& product) const {
  std::vector<Owned> memories;
  std::vector<OnednnLibrary::Argument> arguments;
  const auto add = [&](const Operand& operand, const void* address) {
    void* memory = nullptr;
    PAGEMILL_RETURN_IF_ERROR(ToStatus(
        library_.create_memory(
            &memory,
            library_.layout_of(prepared.description.get(), operand.layout, operand.index),
            engine_.get(), kUsm, const_cast<void*>(address)),
        "to use an address"));
    memories.emplace_back(memory, library_.destroy_memory);
    arguments.push_back({operand.argument, memory});
    return OkStatus();
  };
  PAGEMILL_RETURN_IF_ERROR(add(kX, product.x));
  PAGEMILL_RETURN_IF_ERROR(add(kW, product.w));
  PAGEMILL_RETURN_IF_ERROR(add(kY, product.y));
  if (product.bias != nullptr) PAGEMILL_RETURN_IF_ERROR(add(kBias, product.bias));
  if (ScratchpadBytes(prepared) > 0) {
    PAGEMILL_RETURN_IF_ERROR(add(kScratchpad, product.workspace));
  }
  // The library holds on to what it has enqueued.
  return ToStatus(library_.execute(prepared.product.get(), stream_.get(),
                                   static_cast<int>(arguments.size()), arguments.data()),
                  "to multiply");
}

StatusOr<const Onednn::Prepared*> Onednn::Find(const MatrixProduct& product) {
  const Sizes sizes = {static_cast<int64_t>(product.type),
                       product.f32_result,
                       product.bias != nullptr,
                       product.rows,
                       product.outputs,
                       product.columns,
                       product.x_stride,
                       product.w_stride,
                       product.y_stride};
  auto known = prepared_.find(sizes);
  if (known == prepared_.end()) {
    PAGEMILL_ASSIGN_OR_RETURN(Prepared prepared, Prepare(product));
    if (prepared_.size() >= kMostPrepared) prepared_.clear();
    known = prepared_.emplace(sizes, std::move(prepared)).first;
  }
  return &known->second;
}

StatusOr<bool> Onednn::CanMultiply(const MatrixProduct& product) {
  PAGEMILL_ASSIGN_OR_RETURN(const Prepared* const prepared, Find(product));
  return prepared->product != nullptr;
}

StatusOr<bool> Onednn::Multiply(const MatrixProduct& product) {
  PAGEMILL_ASSIGN_OR_RETURN(const Prepared* const prepared, Find(product));
  if (prepared->product == nullptr) return false;
  PAGEMILL_RETURN_IF_ERROR(Execute(*prepared, product));
  return true;
}

}  // namespace pagemill::sycl
