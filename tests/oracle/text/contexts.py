"""Conversations that chat templates are rendered with: name -> variables."""

import copy

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather at a place, in <b>°C</b> & \"feels like\"",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "e.g. Łódź or 東京"},
                "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
                "days": {"type": ["integer", "null"], "minimum": 1, "maximum": 14},
                "limit": {"type": "number", "default": 0.5},
            },
            "required": ["city"],
        },
    },
}
SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Finds documents.\nTwo lines.",
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"type": "string"},
                "filters": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"key": {"type": "string"}, "n": {"type": "integer"}},
                    },
                },
            },
            "required": ["query"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}
PLAIN_TOOL = {
    "type": "function",
    "function": {
        "name": "now",
        "description": "",
        "parameters": {"type": "object", "properties": {}},
    },
}


def user(content):
    return {"role": "user", "content": content}


def system(content):
    return {"role": "system", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def call(name, arguments, identity="call00001"):
    return {
        "id": identity,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def result(content, name="get_weather", identity="call00001"):
    return {"role": "tool", "name": name, "tool_call_id": identity, "content": content}


def parts(*texts):
    return [{"type": "text", "text": text} for text in texts]


TURNS = [
    system("You are terse."),
    user("Hello"),
    assistant("Hi. What can I do?"),
    user("Count to 3."),
    assistant("1\n2\n3"),
    user("Thanks!"),
]
ROUND = [
    user("Weather in Łódź?"),
    assistant("", tool_calls=[call("get_weather", {"city": "Łódź", "days": 2, "limit": 1.0})]),
    result('{"temp": 21.5, "sky": "clear"}'),
]

_CONTEXTS = {
    "user": dict(messages=[user("What is the capital of France?")]),
    "user_no_prompt": dict(messages=[user("Hello")], add_generation_prompt=False),
    "system_user": dict(messages=[system("Be kind."), user("Hello")]),
    "turns": dict(messages=TURNS),
    "turns_no_prompt": dict(messages=TURNS[:-1], add_generation_prompt=False),
    "empty_content": dict(messages=[user("")]),
    "white_space": dict(messages=[system("  s \n"), user("\n  a\tb  \n\n"), assistant(" x "),
                                  user("c ")]),
    "unicode": dict(messages=[user("naïve 東京 😀 \u200d e\u0301 \u00a0 ﬁ ١٢٣ 温度—")]),
    "markup": dict(messages=[system("<s>&amp;</s>"), user("a < b && c > d 'q' \"r\" \\ /")]),
    "system_only": dict(messages=[system("Only this.")]),
    "two_users": dict(messages=[user("one"), user("two")]),
    "assistant_first": dict(messages=[assistant("Hello!"), user("hi")]),
    "assistant_last": dict(messages=[user("hi"), assistant("Hello")]),
    "system_in_the_middle": dict(messages=[user("a"), system("b"), user("c")]),
    "developer": dict(messages=[{"role": "developer", "content": "Be brief."}, user("hi")]),
    "unknown_role": dict(messages=[{"role": "moderator", "content": "x"}, user("hi")]),
    "parts": dict(messages=[system("s"), user(parts("Hello ", "there")), assistant("ok"),
                            user(parts("and?"))]),
    "tools": dict(messages=[user("Weather in Łódź?")], tools=[WEATHER]),
    "tools_system": dict(messages=[system("Use tools."), user("Find x")],
                         tools=[WEATHER, SEARCH, PLAIN_TOOL]),
    "no_tools": dict(messages=[system("s"), user("hi")], tools=[]),
    "tool_round": dict(messages=ROUND, tools=[WEATHER]),
    "tool_round_answered": dict(messages=[*ROUND, assistant("21.5 °C."), user("And tomorrow?")],
                                tools=[WEATHER, SEARCH]),
    "tool_round_with_text": dict(messages=[
        system("s"), user("Weather?"),
        assistant("Let me look.", tool_calls=[call("get_weather", {"city": "X"})]),
        result("sunny"), assistant("Sunny.")], tools=[WEATHER], add_generation_prompt=False),
    "two_calls": dict(messages=[
        user("Both"),
        assistant("", tool_calls=[call("get_weather", {"city": "A"}, "call00001"),
                                  call("search", {"query": "b", "filters": [{"key": "k", "n": 1}]},
                                       "call00002")]),
        result("1", "get_weather", "call00001"), result("2", "search", "call00002")],
        tools=[WEATHER, SEARCH]),
    "call_without_content": dict(messages=[
        user("Go"), {"role": "assistant", "tool_calls": [call("now", {})]},
        result("12:00", "now")], tools=[PLAIN_TOOL]),
    "call_with_null": dict(messages=[
        user("Go"), assistant(None, tool_calls=[call("now", {})]), result("12:00", "now")],
        tools=[PLAIN_TOOL]),
    "text_arguments": dict(messages=[
        user("Go"), assistant("", tool_calls=[call("search", '{"query": "a"}')]),
        result("nothing", "search")], tools=[SEARCH]),
    "awkward_arguments": dict(messages=[
        user("Go"),
        assistant("", tool_calls=[call("search", {
            "query": "a \"b\" <c> 'd' \n é", "none": None, "yes": True, "f": 1.5e15, "i": 7,
            "l": [1, "two", [3.25]], "o": {"z": 1, "a": {}}})]),
        result("nothing", "search")], tools=[SEARCH]),
    "result_only": dict(messages=[user("x"), result("orphan")], tools=[WEATHER]),
    "thinking_off": dict(messages=[user("hi")], enable_thinking=False),
    "thinking_on": dict(messages=[system("s"), user("hi")], enable_thinking=True, thinking=True),
    "reasoning": dict(messages=[
        user("2+2?"),
        assistant("4", reasoning_content="Two and two.", thinking="Two and two."),
        user("3+3?")]),
    "think_tags": dict(messages=[
        user("2+2?"), assistant("<think>\nTwo and two.\n</think>\n\n4"), user("3+3?"),
        assistant("<think>x</think>6"), user("why")]),
    "reasoning_round": dict(messages=[
        user("Weather?"),
        assistant("", reasoning_content="I need the tool.", thinking="I need the tool.",
                  tool_calls=[call("get_weather", {"city": "X"})]),
        result("sunny")], tools=[WEATHER], enable_thinking=True),
    "documents": dict(messages=[user("Sum up.")],
                      documents=[{"title": "T", "text": "Some text.", "doc_id": 1}]),
    "effort": dict(messages=[user("hi")], reasoning_effort="high",
                   model_identity="You are Test.", date_string="01 Jan 2025"),
    "long": dict(messages=[system("s")] + [
        m for i in range(12) for m in (user(f"question {i}"), assistant(f"answer {i}"))
    ] + [user("last")]),
    "image": dict(messages=[user([{"type": "image"}, {"type": "text", "text": "What is it?"}])]),
    "no_messages": dict(messages=[]),
}


def contexts():
    out = {}
    for name, given in _CONTEXTS.items():
        context = dict(
            tools=None,
            documents=None,
            add_generation_prompt=True,
            bos_token="<s>",
            eos_token="</s>",
        )
        context.update(copy.deepcopy(given))
        out[name] = context
    return out
