// killed_run FOLDER: a training run of the toy model that goes on from the
// checkpoints in FOLDER and, at its end, writes the weights to
// FOLDER/final.safetensors. A checkpoint after every update, so that whoever
// kills it often meets it writing one.
#include <cstdio>

#include "mlxx/core/safetensors_writer.h"
#include "tests/train/toy_run.h"

int main(int argc, char** argv) {
  using namespace mlxx;
  if (argc != 2) {
    return 2;
  }
  try {
    train::ToyRun run(argv[1]);
    run.options.iterations = 40;
    run.options.save_every = 1;
    train::TrainObserver silent;
    run.run(silent, true);
    SafetensorsArrays weights;
    for (size_t i = 0; i < run.model.values().size(); ++i) {
      weights.emplace_back(run.model.names()[i], run.model.values()[i]);
    }
    write_safetensors(run.folder / "final.safetensors", weights);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
