"""What a call sends to its receivers. Each statement says what happened in which call of
`test_events.py`, and what must be true of it.

`whole` is a call that sends everything: the user speaks, the agent calls a tool and answers, a
typed text interrupts it, the time runs out. `brief` subscribes to two events only, and the user
leaves. `left` names its user. `guarded` has a guardrail whose receiver rejects the request.
`silent` has no receiver.
"""

from . import NUMBER, TEXT, interface, matches

MAX_CALL_DURATION = 16


def payloads(call, name):
    return [one["event"]["payload"] for one in call.events if one["event"]["name"] == name]


def has_exact_fields(call, name, fields):
    """There is one event of this name, and it has these fields and no others."""
    found = payloads(call, name)
    return bool(found) and all(set(payload) == set(fields) and matches(payload, fields) for payload in found)


def in_order(call, *names):
    """The first events of each kind arrive in this order."""
    event_names = [one["event"]["name"] for one in call.events]
    return all(name in event_names for name in names) and [event_names.index(name) for name in names] == sorted(event_names.index(name) for name in names)


def bodies_valid(call):
    shape = {"timestamp": NUMBER, "conversation_id": call.id, "type": "pipeline", "event": {"name": TEXT, "payload": {}}}
    return all(matches(one, shape) and set(one) - {"sequence"} == set(shape) and set(one["event"]) == {"name", "payload"} for one in call.events)


def times_valid(call):
    stamps = [one["timestamp"] for one in call.events]
    return stamps == sorted(stamps) and call.started_at - 1 < stamps[0] and stamps[-1] < call.ended + 1 and any(stamp % 1 for stamp in stamps)


def spoken_texts_valid(call):
    """What was stopped was started, and only an interrupted text is shorter."""
    started, stopped = payloads(call, "agent.started_speaking"), payloads(call, "agent.stopped_speaking")
    return len(started) == len(stopped) and all(a["text"].startswith(b["text"].rstrip()) for a, b in zip(started, stopped, strict=True)) and any(a != b for a, b in zip(started, stopped, strict=True))


def limits_valid(call):
    (warned,), (reached,) = payloads(call, "max_call_duration_warning"), payloads(call, "max_call_duration_timeout")
    return warned["max_call_duration"] == reached["max_call_duration"] == MAX_CALL_DURATION and warned["call_duration"] < MAX_CALL_DURATION - 2 and MAX_CALL_DURATION - 0.1 <= reached["call_duration"] < MAX_CALL_DURATION + 2


DURATION_FIELDS = {"call_duration": NUMBER, "max_call_duration": NUMBER}
ROWS = [
    ("every event has the same body", "whole", bodies_valid),
    ("its time is Unix time in seconds, with fractions, and never runs back", "whole", times_valid),
    ("every event is signed as Standard Webhooks asks", "whole", lambda call: not call.errors),
    ("all eleven events are sent to who lists them, but for the one of a user who leaves", "whole", lambda call: {one["event"]["name"] for one in call.events} == set(interface.EVENTS) - {"participant_left"}),
    ("user.started_speaking holds nothing", "whole", lambda call: has_exact_fields(call, "user.started_speaking", {})),
    ("user.stopped_speaking holds nothing, and follows", "whole", lambda call: has_exact_fields(call, "user.stopped_speaking", {}) and in_order(call, "user.started_speaking", "user.stopped_speaking")),
    ("utterance_committed holds the final text, behind the end of speech", "whole", lambda call: has_exact_fields(call, "utterance_committed", {"text": TEXT}) and in_order(call, "user.stopped_speaking", "utterance_committed")),
    ("what is typed is committed as it was typed", "whole", lambda call: {"text": call.typed} in payloads(call, "utterance_committed")),
    ("tool_call holds the tool's name, its inputs and its answer", "whole", lambda call: payloads(call, "tool_call") == [call.tool]),
    ("agent.started_speaking holds the text about to be spoken", "whole", lambda call: has_exact_fields(call, "agent.started_speaking", {"text": TEXT}) and call.answer in [p["text"] for p in payloads(call, "agent.started_speaking")]),
    ("agent.stopped_speaking holds the text just spoken", "whole", lambda call: has_exact_fields(call, "agent.stopped_speaking", {"text": TEXT}) and spoken_texts_valid(call)),
    ("agent.interrupted holds nothing, and comes before the agent has finished", "whole", lambda call: has_exact_fields(call, "agent.interrupted", {}) and in_order(call, "agent.started_speaking", "agent.interrupted", "agent.stopped_speaking")),
    ("max_call_duration_warning holds both durations", "whole", lambda call: has_exact_fields(call, "max_call_duration_warning", DURATION_FIELDS)),
    ("max_call_duration_timeout holds both durations", "whole", lambda call: has_exact_fields(call, "max_call_duration_timeout", DURATION_FIELDS)),
    ("the warning precedes the timeout, and both are given in seconds", "whole", lambda call: in_order(call, "max_call_duration_warning", "max_call_duration_timeout") and limits_valid(call)),
    ("call_ended holds nothing, and is the last", "whole", lambda call: has_exact_fields(call, "call_ended", {}) and [one["event"]["name"] for one in call.events].index("call_ended") == len(call.events) - 1),
    ("a call whose time ran out has the record of it", "whole", lambda call: call.record["end_reason"] == "max_call_duration"),
    ("participant_left holds who left", "left", lambda call: has_exact_fields(call, "participant_left", {"id": TEXT}) and payloads(call, "participant_left")[0]["id"] == "ada-1"),
    ("and precedes the end", "left", lambda call: in_order(call, "participant_left", "call_ended")),
    ("only listed events are sent", "brief", lambda call: {one["event"]["name"] for one in call.events} == {"user.stopped_speaking", "call_ended"} and call.events[-1]["event"]["name"] == "call_ended"),
    ("an agent without callback_url sends none", "silent", lambda call: call.events == []),
    ("a guardrail that fires POSTs guardrail_triggered to its own address", "guarded", lambda call: [notice["event"] for notice in call.callbacks] == ["guardrail_triggered"]),
    ("once: the request to a receiver that fails is not repeated", "guarded", lambda call: len(call.callbacks) == 1),
    ("a trickled candidate is accepted", "left", lambda call: call.signaling["PATCH"] == 204),
    ("a DELETE of the WHIP resource ends the call", "left", lambda call: call.signaling["DELETE"] == 200 and call.record["end_reason"] == "user_left"),
]  # fmt: skip
