// A device for tests, simulated on the CPU as PyTorch's PrivateUse1. It shows what a GPU hides from those who do not wait:
//
//   memory    A device's addresses are closed to the host: an access ends the process. The device's threads reach the same
//             pages through a second mapping.
//   streams   Each is a thread that works through its queue, with a delay in each copy and before each kernel.
//   copies    A queued copy reads and writes page-locked memory while it runs, not when it is queued.
//   freed     Memory that nobody owns is filled with 0xA5, in the order of the stream that allocated it. Where other streams
//             use it (record_stream), it stays as it is until they have come past the moment at which it was freed.
//   pinned    Page-locked memory likewise: it is given away only after the streams whose copies PyTorch's caching host
//             allocator would know of. There is a limit to how much can be locked.
//   fork      A child cannot use the device.
//
// FERRY_DEVICE_LIKE=mps in the environment makes it a device without streams, page-locked memory and float64.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/NativeFunctions.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <pthread.h>
#include <pybind11/pybind11.h>
#include <sys/mman.h>
#include <torch/library.h>
#include <unistd.h>

#include <bit>
#include <condition_variable>
#include <deque>
#include <map>
#include <set>
#include <thread>

namespace {
using at::Tensor;
using c10::Device;
using c10::DeviceIndex;
using Job = std::function<void()>;

constexpr auto KIND = c10::DeviceType::PrivateUse1;
constexpr int DEVICES = 2, STREAMS = 9;  // stream 0 is the default one
constexpr int GONE = 0xA5;
constexpr size_t SPACE = size_t(8) << 30, UNIT = 512, PAGE = 4096;

std::atomic<double> copy_delay{0}, bandwidth{1e12}, kernel_delay{0}, pinned_limit{1e15};
std::atomic<bool> forked{false};
bool simple = false;  // as MPS: no streams, nothing page-locked, no float64

void pause(double seconds) {
  if (seconds > 0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}
void refuse_child() {
  TORCH_CHECK(!forked, "Cannot re-initialize the simulated device in forked subprocess. Use the 'spawn' start method");
}

// -- streams and events ---------------------------------------------------------------------------

// A point in a stream's work, which is either passed or still to come.
struct Point {
  std::mutex lock;
  std::condition_variable change;
  bool passed = false;

  void pass() {
    std::lock_guard guard(lock);
    passed = true;
    change.notify_all();
  }
  bool is_passed() {
    std::lock_guard guard(lock);
    return passed;
  }
  void wait(double seconds = 1e6) {
    std::unique_lock guard(lock);
    change.wait_for(guard, std::chrono::duration<double>(seconds), [this] { return passed; });
  }
};
using PointPtr = std::shared_ptr<Point>;

// What a job has raised; told to whoever synchronises next, as a GPU's errors are. Globals are never destroyed: the threads
// of the streams outlive them.
auto& failure_lock = *new std::mutex;
auto& failure = *new std::string;

class Queue {
 public:
  void add(Job job) {
    refuse_child();
    std::lock_guard guard(lock);
    jobs.push_back(std::move(job));
    ++waiting;
    if (!started) std::thread([this] { work(); }).detach();
    started = true;
    change.notify_one();
  }
  PointPtr point() {
    auto made = std::make_shared<Point>();
    add([made] { made->pass(); });
    return made;
  }
  void wait_for(PointPtr point) { add([point] { point->wait(); }); }
  bool idle() {
    std::lock_guard guard(lock);
    return waiting == 0;
  }

 private:
  std::mutex lock;
  std::condition_variable change;
  std::deque<Job> jobs;
  size_t waiting = 0;
  bool started = false;

  void work() {
    c10::NoGradGuard no_grad;
    at::AutoDispatchBelowADInplaceOrView below;
    std::unique_lock guard(lock);
    for (;;) {
      change.wait(guard, [this] { return !jobs.empty(); });
      Job job = std::move(jobs.front());
      jobs.pop_front();
      guard.unlock();
      try {
        job();
      } catch (const std::exception& error) {
        std::lock_guard failing(failure_lock);
        failure = error.what();
      }
      job = nullptr;
      guard.lock();
      --waiting;
    }
  }
};

using StreamId = std::pair<int, int64_t>;  // the device, and which of its streams

Queue& queue_of(StreamId stream) {
  static auto* all = new Queue[DEVICES * STREAMS];
  TORCH_CHECK(stream.first >= 0 && stream.first < DEVICES && stream.second >= 0 && stream.second < STREAMS, "no such stream");
  return all[stream.first * STREAMS + stream.second];
}
StreamId id_of(const c10::Stream& stream) { return {stream.device_index(), stream.id()}; }
c10::Stream stream_of(StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, Device(KIND, static_cast<DeviceIndex>(id.first)), id.second);
}

thread_local DeviceIndex current_device = 0;
thread_local int64_t current_streams[DEVICES] = {};
StreamId current(int device) { return {device, current_streams[device]}; }
DeviceIndex index_of(Device device) {
  const DeviceIndex index = device.has_index() ? device.index() : current_device;
  TORCH_CHECK(index >= 0 && index < DEVICES, "invalid device ordinal ", int(index), ": there are ", DEVICES);
  return index;
}
DeviceIndex exchange_device(Device device) { return std::exchange(current_device, index_of(device)); }
struct OnDevice {
  DeviceIndex before;
  explicit OnDevice(Device device) : before(exchange_device(device)) {}
  ~OnDevice() { current_device = before; }
};

void raise_failure() {
  std::lock_guard guard(failure_lock);
  const std::string what = std::exchange(failure, "");
  TORCH_CHECK(what.empty(), "The simulated device has failed at what was queued: ", what);
}
void finish(StreamId stream) {
  queue_of(stream).point()->wait();
  raise_failure();
}
void finish_device(int device) {
  for (int64_t each = 0; each < STREAMS; ++each)
    if (!queue_of({device, each}).idle()) finish({device, each});
  raise_failure();
}

// -- what happened --------------------------------------------------------------------------------

struct Seen {
  std::string kind;  // h2d, d2h, p2p: over the bus; kernel: on the device; fallback: what the CPU does then, over the bus and back
  int64_t bytes;
  bool pinned, queued;  // whether the host's side is page-locked; whether the host did not wait
  StreamId stream;
  std::string name;
};
auto& seen_lock = *new std::mutex;
auto& all_seen = *new std::vector<Seen>;
bool looking = false;

void saw(Seen seen) {
  std::lock_guard guard(seen_lock);
  if (looking) all_seen.push_back(std::move(seen));
}

// -- memory ---------------------------------------------------------------------------------------

struct Block {
  char* start;
  size_t size;
  StreamId owner;  // whose stream allocated it; of page-locked memory nobody's
  std::set<StreamId> users;
  std::vector<PointPtr> points;  // what the users have to come past before it is given away
};

// Memory by blocks, as PyTorch's caching allocators keep it.
struct Pool {
  std::mutex lock;
  std::map<const void*, Block> used;
  std::vector<Block> leaving;
  std::map<std::pair<StreamId, size_t>, std::vector<char*>> spare;
  size_t allocated = 0, active = 0, peak = 0, asked = 0;

  virtual char* more(size_t size) = 0;
  virtual void spoil(const Block& block) = 0;

  char* take(size_t size, StreamId owner) {
    std::lock_guard guard(lock);
    look_after();
    auto& stock = spare[{owner, size}];
    Block block{nullptr, size, owner, {}, {}};
    if (stock.empty()) {
      block.start = more(size);
      spoil(block);
    } else {
      block.start = stock.back();
      stock.pop_back();
    }
    used[block.start] = block;
    allocated += size;
    active += size;
    peak = std::max(peak, active);
    ++asked;
    return block.start;
  }
  void give_back(void* start) {
    std::lock_guard guard(lock);
    Block block = std::move(used.extract(start).mapped());
    allocated -= block.size;
    for (StreamId user : block.users) block.points.push_back(queue_of(user).point());
    leaving.push_back(std::move(block));
    look_after();
  }
  void record(const void* start, StreamId user) {
    std::lock_guard guard(lock);
    auto found = used.find(start);
    if (found != used.end() && found->second.owner != user) found->second.users.insert(user);
  }
  bool has(const void* address) {
    std::lock_guard guard(lock);
    auto next = used.upper_bound(address);
    return next != used.begin() && address < std::prev(next)->second.start + std::prev(next)->second.size;
  }
  // What nobody uses any more is given away.
  void look_after() {
    std::erase_if(leaving, [this](const Block& block) {
      for (const PointPtr& point : block.points)
        if (!point->is_passed()) return false;
      spoil(block);
      active -= block.size;
      spare[{block.owner, block.size}].push_back(block.start);
      return true;
    });
  }
};

struct DeviceMemory final : Pool {
  char *front = nullptr, *back = nullptr;  // where the host sees it, and finds nothing; where the device works
  size_t end = 0;

  void open() {
    const int file = memfd_create("simulated device", MFD_CLOEXEC);
    TORCH_CHECK(file >= 0 && ftruncate(file, SPACE) == 0, "no memory for the simulated device");
    back = static_cast<char*>(mmap(nullptr, SPACE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0));
    front = static_cast<char*>(mmap(nullptr, SPACE, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0));
    close(file);
    TORCH_CHECK(back != MAP_FAILED && front != MAP_FAILED, "no addresses for the simulated device");
  }
  char* more(size_t size) override {
    TORCH_CHECK_WITH(OutOfMemoryError, end + size <= SPACE, "the simulated device is out of memory");
    return front + std::exchange(end, end + size);
  }
  void spoil(const Block& block) override {  // in the order of its stream
    queue_of(block.owner).add([at = back + (block.start - front), size = block.size] { memset(at, GONE, size); });
  }
};
auto* memories = new DeviceMemory[DEVICES];

struct HostMemory final : Pool {
  size_t total = 0;

  char* more(size_t size) override {
    void* made = double(total + size) <= pinned_limit ? aligned_alloc(PAGE, size) : nullptr;
    TORCH_CHECK(made, "simulated device error: out of memory");
    total += size;
    return static_cast<char*>(made);
  }
  void spoil(const Block& block) override { memset(block.start, GONE, block.size); }
};
auto& locked = *new HostMemory;

int owner_of(const void* address) {
  for (int device = 0; device < DEVICES; ++device)
    if (address >= memories[device].front && address < memories[device].front + SPACE) return device;
  TORCH_CHECK(false, "not an address of the simulated device: ", address);
}
char* back_of(const void* front) {
  const DeviceMemory& memory = memories[owner_of(front)];
  return memory.back + (static_cast<const char*>(front) - memory.front);
}
void free_device(void* start) {
  if (start && !forked) memories[owner_of(start)].give_back(start);
}
void free_locked(void* start) {
  if (start && !forked) locked.give_back(start);
}
struct DeviceAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t nbytes) override {
    refuse_child();
    const size_t size = (nbytes + UNIT - 1) / UNIT * UNIT;
    void* start = nbytes ? memories[current_device].take(size, current(current_device)) : nullptr;
    return {start, start, &free_device, Device(KIND, current_device)};
  }
  void copy_data(void*, const void*, size_t) const override { TORCH_CHECK(false, "by copy_ only"); }
};
struct LockedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t nbytes) override {
    refuse_child();
    TORCH_CHECK(!simple, "Cannot pin memory: this device has none");
    void* start = nbytes ? locked.take(std::max(PAGE, std::bit_ceil(nbytes)), {-1, 0}) : nullptr;
    return {start, start, &free_locked, c10::kCPU};
  }
  void copy_data(void* to, const void* from, size_t count) const override { memcpy(to, from, count); }
};
auto& device_allocator = *new DeviceAllocator;
auto& locked_allocator = *new LockedAllocator;

void record_stream(Tensor& self, c10::Stream stream) {
  if (self.numel()) memories[self.device().index()].record(self.storage().data_ptr().get(), id_of(stream));
}

// -- copies and kernels ---------------------------------------------------------------------------

// A tensor as the device's threads see it.
Tensor inside(const Tensor& x) {
  void* back = x.numel() ? back_of(x.const_data_ptr()) : nullptr;
  Tensor found = at::from_blob(back, x.sizes(), x.strides(), at::TensorOptions(x.scalar_type()));
  found._set_conj(x.is_conj());
  found._set_neg(x.is_neg());
  return found;
}
void launch(int device, std::string name, int64_t bytes, Job job) {
  const StreamId stream = current(device);
  saw({"kernel", bytes, false, !simple, stream, std::move(name)});
  queue_of(stream).add([job = std::move(job), delay = kernel_delay.load()] {
    pause(delay);
    job();
  });
  if (simple) finish(stream);
}
bool alike(const Tensor& a, const Tensor& b) {
  const bool same = a.scalar_type() == b.scalar_type() && a.is_conj() == b.is_conj() && a.is_neg() == b.is_neg();
  const bool dense = a.strides() == b.strides() && a.is_non_overlapping_and_dense();
  return same && ((a.is_contiguous() && b.is_contiguous()) || dense);
}

// One copy over the bus, of memory that has the same layout on both sides.
void transfer(const Tensor& to, const Tensor& from, bool non_blocking) {
  const bool up = from.is_cpu(), down = to.is_cpu();
  const StreamId stream = current((up ? to : from).device().index()), other = current((down ? from : to).device().index());
  const Tensor& host = up ? from : to;
  const size_t bytes = to.nbytes();
  const bool pinned = (up || down) && locked.has(host.const_data_ptr());
  const char* source = static_cast<const char*>(from.const_data_ptr());
  char* target = static_cast<char*>(to.mutable_data_ptr());
  std::vector<char> read;
  if (!up) source = back_of(source);
  if (!down) target = back_of(target);
  // The host's pageable memory is read before the call returns, and written before it returns.
  const bool queued = !simple && ((!up && !down) || (non_blocking && (up || pinned)));
  if (up && queued && !pinned) {
    read.assign(source, source + bytes);
    source = nullptr;
  }
  saw({up ? "h2d" : down ? "d2h" : "p2p", int64_t(bytes), pinned, queued, stream, ""});
  if (stream != other) queue_of(stream).wait_for(queue_of(other).point());
  queue_of(stream).add([=, read = std::move(read), delay = copy_delay + bytes / bandwidth] {
    // It takes a while: half of it comes before, so that it may neither begin too early nor be overtaken.
    const char* start = source ? source : read.data();
    memcpy(target, start, bytes / 2);
    pause(delay);
    memcpy(target + bytes / 2, start + bytes / 2, bytes - bytes / 2);
  });
  if (stream != other) queue_of(other).wait_for(queue_of(stream).point());
  if (pinned && queued) {
    // So PyTorch's caching host allocator finds a block: by the storage's context, or else by the very first byte. It does
    // not find memory that has lost its context (through NumPy, say) and does not begin there.
    locked.record(host.storage().data_ptr().get_context(), stream);
    locked.record(host.const_data_ptr(), stream);
  }
  if (!queued) finish(stream);
}

Tensor& copy_(Tensor& to, const Tensor& source, bool non_blocking) {
  refuse_child();
  if (to.is_same(source) || to.numel() == 0) return to;
  const Tensor from = source.expand_as(to);
  if (to.device() == from.device()) {
    launch(to.device().index(), "copy", to.nbytes(), [a = inside(to), b = inside(from)]() mutable { a.copy_(b); });
  } else if (alike(to, from)) {
    transfer(to, from, non_blocking);
  } else {  // through compact memory on both sides; the dtype is changed on the host, or else by the source's device
    const auto dtype = to.is_cpu() ? from.scalar_type() : to.scalar_type();
    const bool plain = from.scalar_type() == dtype && from.is_contiguous() && !from.is_conj() && !from.is_neg();
    const Tensor start = plain ? from : at::empty(from.sizes(), from.options().dtype(dtype)).copy_(from);
    const Tensor end = at::empty(to.sizes(), to.options().dtype(dtype));
    transfer(end, start, non_blocking);
    to.copy_(end);
  }
  return to;
}
Tensor copy_from(const Tensor& self, const Tensor& to, bool non_blocking) {
  Tensor into = to;
  return copy_(into, self, non_blocking);
}
Tensor copy_from_and_resize(const Tensor& self, const Tensor& to) {
  if (self.sizes() != to.sizes()) to.resize_(self.sizes());
  return copy_from(self, to, false);
}

// -- operations -----------------------------------------------------------------------------------

Device checked(std::optional<Device> device, std::optional<c10::ScalarType> dtype, std::optional<bool> pin) {
  refuse_child();
  TORCH_CHECK(!pin.value_or(false), "Only dense CPU tensors can be pinned");
  TORCH_CHECK_TYPE(!simple || dtype != at::kDouble, "The simulated device has no float64 (as MPS)");
  return device.value_or(Device(KIND));
}
Tensor empty(c10::IntArrayRef size, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>,
             std::optional<Device> device, std::optional<bool> pin, std::optional<c10::MemoryFormat> format) {
  OnDevice on(checked(device, c10::dtype_or_default(dtype), pin));
  return at::detail::empty_generic(size, &device_allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}
Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<c10::ScalarType> dtype,
                     std::optional<c10::Layout>, std::optional<Device> device, std::optional<bool> pin) {
  OnDevice on(checked(device, c10::dtype_or_default(dtype), pin));
  return at::detail::empty_strided_generic(size, stride, &device_allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(dtype));
}
Tensor as_strided(const Tensor& self, c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, offset);
}
const Tensor& resize_(const Tensor& self, c10::IntArrayRef size, std::optional<c10::MemoryFormat> format) {
  OnDevice on(self.device());
  return at::native::resize_(self, size, format);
}
Tensor& set_storage(Tensor& self, at::Storage storage) {
  return self.set_(storage, 0, {static_cast<int64_t>(storage.nbytes() / self.itemsize())}, {});
}
at::Scalar item(const Tensor& self) { return self.to(at::kCPU).item(); }

c10::IValue each_tensor(const c10::IValue& value, const std::function<Tensor(const Tensor&)>& change) {
  if (value.isTensor()) return value.toTensor().defined() ? c10::IValue(change(value.toTensor())) : value;
  if (!value.isTensorList()) return value;
  c10::List<Tensor> made;
  for (const Tensor& x : value.toTensorVector()) made.push_back(change(x));
  return made;
}
// What an operation returns is known from PyTorch's meta device; nothing where only the values tell it.
std::optional<Tensor> foreseen(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments) {
  torch::jit::Stack stack;
  for (const auto& value : arguments)
    stack.push_back(each_tensor(value, [](const Tensor& x) {
      return x.is_cpu() ? x : at::empty_strided(x.sizes(), x.strides(), x.options().device(at::kMeta));
    }));
  try {
    op.callBoxed(&stack);
  } catch (const std::exception&) {
    return std::nullopt;
  }
  return stack.back().toTensor();
}
// Any operation: queued on the current stream where its result is one tensor that can be foreseen; else done by the CPU.
void operation(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  refuse_child();
  const auto& schema = op.schema();
  const size_t count = schema.arguments().size();
  const std::vector<c10::IValue> arguments(stack->end() - count, stack->end());
  std::vector<Tensor> written;
  std::set<int> devices;
  for (size_t at = 0; at < count; ++at) {
    const auto* alias = schema.arguments()[at].alias_info();
    each_tensor(arguments[at], [&](const Tensor& x) {
      if (!x.is_cpu()) devices.insert(x.device().index());
      if (alias && alias->isWrite()) written.push_back(x);
      return x;
    });
  }
  TORCH_CHECK(devices.size() <= 1, "Expected all tensors to be on the same device");
  const int device = devices.empty() ? current_device : *devices.begin();
  const bool one = schema.returns().size() == 1 && schema.returns()[0].type()->kind() == c10::TypeKind::TensorType;
  std::optional<Tensor> shape;
  if (one && !devices.empty() && written.size() <= 1) shape = foreseen(op, arguments);
  if (!shape || (!written.empty() && written[0].sizes() != shape->sizes())) {
    saw({"fallback", 0, false, false, current(device), schema.name()});
    at::native::cpu_fallback(op, stack);
    return;
  }
  torch::jit::Stack values;
  for (const auto& value : arguments)
    values.push_back(each_tensor(value, [](const Tensor& x) { return x.is_cpu() ? x.clone() : inside(x); }));
  const bool made = written.empty();
  Tensor result = made ? at::empty_strided(shape->sizes(), shape->strides(), shape->options().device(Device(KIND, device))) : written[0];
  launch(device, schema.name(), result.nbytes(), [op, values = std::move(values), made, into = inside(result)]() mutable {
    op.callBoxed(&values);
    if (made) into.copy_(values.back().toTensor());
  });
  torch::jit::drop(*stack, count);
  torch::jit::push(*stack, std::move(result));
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&operation>()); }
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("as_strided", as_strided);
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("view_as_real", TORCH_FN(at::native::view_as_real));
  m.impl("view_as_complex", TORCH_FN(at::native::view_as_complex));
  m.impl("resize_", resize_);
  m.impl("set_.source_Storage", set_storage);
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(at::native::set_storage_cpu_));
  m.impl("copy_", copy_);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", item);
  m.impl("record_stream", record_stream);
}

// -- what PyTorch asks of a device ----------------------------------------------------------------

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return KIND; }
  DeviceIndex deviceCount() const noexcept override { return DEVICES; }
  Device getDevice() const override { return Device(KIND, current_device); }
  void setDevice(Device device) const override { exchange_device(device); }
  void uncheckedSetDevice(Device device) const noexcept override { current_device = device.index(); }
  Device exchangeDevice(Device device) const override { return Device(KIND, exchange_device(device)); }
  c10::Stream getStream(Device device) const override { return stream_of(current(index_of(device))); }
  c10::Stream getDefaultStream(Device device) const override { return stream_of({index_of(device), 0}); }
  c10::Stream getStreamFromGlobalPool(Device device, bool) const override {
    static std::atomic<int64_t> next{0};
    refuse_child();
    TORCH_CHECK(!simple, "The simulated device has no streams (as MPS)");
    return stream_of({index_of(device), 1 + next++ % (STREAMS - 1)});
  }
  c10::Stream getNewStream(Device device, int) const override { return getStreamFromGlobalPool(device, false); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const int device = stream.device_index();
    return stream_of({device, std::exchange(current_streams[device], stream.id())});
  }
  bool queryStream(const c10::Stream& stream) const override { return queue_of(id_of(stream)).idle(); }
  void synchronizeStream(const c10::Stream& stream) const override { finish(id_of(stream)); }
  void synchronizeDevice(const DeviceIndex device) const override { finish_device(device); }
  void record(void** event, const c10::Stream& stream, const DeviceIndex, const c10::EventFlag) const override {
    TORCH_CHECK(!simple, "The simulated device has no events (as MPS)");
    auto* made = new PointPtr(queue_of(id_of(stream)).point());
    delete static_cast<PointPtr*>(std::exchange(*event, made));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event) queue_of(id_of(stream)).wait_for(*static_cast<PointPtr*>(event));
  }
  bool queryEvent(void* event) const override { return !event || (*static_cast<PointPtr*>(event))->is_passed(); }
  void synchronizeEvent(void* event) const override {
    refuse_child();
    if (event) (*static_cast<PointPtr*>(event))->wait();
    raise_failure();
  }
  void destroyEvent(void* event, DeviceIndex) const noexcept override { delete static_cast<PointPtr*>(event); }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return !forked; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  bool isPinnedPtr(const void* address) const override { return locked.has(address); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &locked_allocator; }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t size) const override {
    TORCH_CHECK(storage.nbytes() == 0, "The simulated device makes memory larger only where there was none");
    storage.set_data_ptr_noswap(device_allocator.allocate(size));
    storage.set_nbytes(size);
  }
};

// Bars a stream's way until it is passed; not for ever, so that a test that fails comes to an end.
PointPtr close_gate(int device, double limit) {
  auto gate = std::make_shared<Point>();
  queue_of(current(device)).add([gate, limit] { gate->wait(limit); gate->pass(); });
  return gate;
}
}  // namespace

namespace py = pybind11;
PYBIND11_MODULE(_device, m) {
  const char* like = getenv("FERRY_DEVICE_LIKE");
  simple = like && std::string(like) == "mps";
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  c10::SetAllocator(KIND, &device_allocator);
  for (int device = 0; device < DEVICES; ++device) memories[device].open();
  pthread_atfork(nullptr, nullptr, [] { forked = true; });

  const auto released = py::call_guard<py::gil_scoped_release>();
  m.def("device_count", [] { return DEVICES; });
  m.def("current_device", [] { return int(current_device); });
  m.def("set_device", [](int device) { exchange_device(Device(KIND, static_cast<DeviceIndex>(device))); });
  m.def("is_forked", [] { return forked.load(); });
  m.def("synchronize", &finish_device, released);
  py::class_<Point, PointPtr>(m, "Gate").def("open", &Point::pass).def("is_open", &Point::is_passed);
  m.def("close_gate", &close_gate);
  m.def("set_delays", [](double copy, double bytes_per_second, double kernel) {
    copy_delay = copy, bandwidth = bytes_per_second, kernel_delay = kernel;
  });
  m.def("set_pinned_limit", [](double bytes) { pinned_limit = bytes; });
  m.def("memory", [](int device, bool from_now) {  // of the host: -1
    Pool& pool = device < 0 ? static_cast<Pool&>(locked) : memories[device];
    std::lock_guard guard(pool.lock);
    pool.look_after();
    const size_t peak = std::exchange(pool.peak, from_now ? pool.active : pool.peak);
    return std::tuple(pool.allocated, pool.active, peak, pool.asked);
  });
  m.def("look", [](bool on) {
    std::lock_guard guard(seen_lock);
    looking = on;
    py::list found;
    for (const Seen& each : std::exchange(all_seen, {}))
      found.append(
          py::make_tuple(each.kind, each.bytes, each.pinned, each.queued, each.stream.first, each.stream.second, each.name));
    return found;
  });
}
