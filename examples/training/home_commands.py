#!/usr/bin/env python3
"""Makes the small task of docs/training.md: requests for things in a house, to
be answered with a command such as "kitchen.lamp=on".

Writes train.jsonl, valid.jsonl and test.jsonl for `mlxx train`, and
questions.jsonl for `mlxx eval tasks`, into the folder that is named. No room
and device of the held-out files stand together in train.jsonl.
"""
import json
import pathlib
import random
import sys

ROOMS = ["kitchen", "bedroom", "garage", "office", "bathroom", "hall", "attic", "garden"]
DEVICES = ["lamp", "heater", "fan", "radio", "blinds", "camera", "speaker", "alarm"]
STATES = ["on", "off"]
REQUESTS = [
    "Turn {state} the {device} in the {room}.",
    "Please switch the {room} {device} {state}.",
    "I want the {device} in the {room} to be {state}.",
    "Could you put the {device} {state}? It is in the {room}.",
]


def command(room, device, state):
    return f"{room}.{device}={state}"


def samples(pairs, draw):
    for room, device in pairs:
        for state in STATES:
            request = draw.choice(REQUESTS).format(room=room, device=device, state=state)
            yield {"prompt": request, "completion": command(room, device, state)}


def question(sample, draw):
    """The right command among three that are wrong in one word."""
    room, rest = sample["completion"].split(".")
    device, state = rest.split("=")
    other_room = draw.choice([name for name in ROOMS if name != room])
    other_device = draw.choice([name for name in DEVICES if name != device])
    other_state = STATES[1 - STATES.index(state)]
    choices = [
        sample["completion"],
        command(other_room, device, state),
        command(room, other_device, state),
        command(room, device, other_state),
    ]
    draw.shuffle(choices)
    return {
        "context": sample["prompt"],
        "continuations": choices,
        "gold": choices.index(sample["completion"]),
    }


def write(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def main(folder):
    draw = random.Random(7)
    pairs = [(room, device) for room in ROOMS for device in DEVICES]
    draw.shuffle(pairs)
    folder.mkdir(parents=True, exist_ok=True)
    test = list(samples(pairs[:12], draw))
    write(folder / "test.jsonl", test)
    write(folder / "questions.jsonl", [question(sample, draw) for sample in test])
    write(folder / "valid.jsonl", samples(pairs[12:18], draw))
    train = [sample for _ in range(2) for sample in samples(pairs[18:], draw)]
    write(folder / "train.jsonl", train)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "home"))
