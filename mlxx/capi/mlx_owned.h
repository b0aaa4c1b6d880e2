#pragma once

#include <memory>
#include <utility>

#include "mlxx/capi/mlx_thread.h"
#include "mlxx/core/memory.h"

namespace mlxx::capi {

// Something with arrays, made on the MLX thread, where its memory is given
// back too: outside of callbacks the destructor waits for that.
template <typename Object>
class MlxOwned {
 public:
  explicit MlxOwned(std::shared_ptr<const Object> object)
      : object_(std::move(object)) {}
  MlxOwned(const MlxOwned&) = delete;
  MlxOwned& operator=(const MlxOwned&) = delete;
  ~MlxOwned() {
    try {
      // The job's own: in a callback it is not waited for.
      auto drop = [last = std::move(object_)]() mutable {
        last.reset();
        clear_cache();
      };
      if (CallbackScope::is_inside()) {
        mlx_thread().post(std::move(drop));
      } else {
        run_on_mlx_thread(std::move(drop));
      }
    } catch (...) {
      // No memory for a job, or a forked process: what is left goes here.
    }
  }

  const Object& operator*() const {
    return *object_;
  }
  const Object* operator->() const {
    return object_.get();
  }

 private:
  std::shared_ptr<const Object> object_;
};

}  // namespace mlxx::capi
