"""What `kubectl mb` says, from objects as the operator writes them."""

from dataclasses import replace
from datetime import timedelta
from xml.etree import ElementTree

import click
import pytest

from kubectl_mb.advice import ADVICE, UNTOLD, About, advice
from kubectl_mb.causes import causes_of
from kubectl_mb.clock import clock_time, span, until_words
from kubectl_mb.drawing import as_html, as_svg, as_text
from kubectl_mb.orders import Choice, target_of
from kubectl_mb.planning import plan_of
from kubectl_mb.releasing import losses
from kubectl_mb.sight import Sight
from kubectl_mb.tables import table
from kubectl_mb.timeline import Tone, timeline_of
from kubectl_mb.troubles import Exit, Trouble, trouble_of
from kubectl_mb.watching import is_settled, seen
from kubectl_mb.why import words
from modelbackend_operator.kinds import Kind
from modelbackend_operator.kubernetes_api import Answer
from modelbackend_operator.reasons import Reason
from tests.kubectl.examples import DOCUMENT as KUBECTL_PAGE
from tests.kubectl.examples import EXAMPLES, a_life, a_pod, document, golden, ledger, serving
from tests.kubectl.situations import SITUATIONS, Raw, Situation, is_busy, raw_backend, raw_claim
from tests.unit.builders import NOW, POD_UID, PORT, later


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_is_printed_is_as_its_golden_text(name: str) -> None:
    assert f"{EXAMPLES[name]().rstrip()}\n" == golden(name)


def test_the_page_shows_what_is_printed() -> None:
    assert KUBECTL_PAGE.read_text() == document()


# -- why ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda situation: situation.title)
def test_why_names_what_a_stuck_backend_waits_for_and_what_releases_it(situation: Situation) -> None:
    first = causes_of(situation.sight)[0]
    assert first.reason == situation.reason
    assert first.waits_for
    assert first.held_by
    assert first.release


def test_of_a_backend_that_serves_nothing_is_said_to_be_waited_for() -> None:
    assert causes_of(Sight("models", "smollm2", backend=serving(), ledger=ledger())) == ()


def test_every_reason_that_is_told_has_its_advice() -> None:
    assert {reason for reason in Reason if reason not in UNTOLD} == set(ADVICE)
    assert advice("OfALaterVersion", About("smollm2")) == ""


@pytest.mark.parametrize("reason", ADVICE)
def test_advice_has_no_gap_whatever_is_known(reason: Reason) -> None:
    assert "{" not in advice(reason, About("smollm2"))
    assert "None" not in advice(reason, About("smollm2"))


def test_who_waits_for_a_neighbour_is_told_what_to_type_about_that_one() -> None:
    for situation in SITUATIONS[:2]:
        assert "kubectl mb watch neighbour -n models" in causes_of(situation.sight)[0].release
    unknown = replace(SITUATIONS[1].sight, neighbours=())
    assert "kubectl mb watch NAME" in causes_of(unknown)[0].release


def test_an_edit_that_no_operator_has_seen_is_told_before_what_was_true_of_the_last_one() -> None:
    edited = serving()
    edited["metadata"]["generation"] = 2
    (cause,) = causes_of(Sight("models", "smollm2", backend=edited))
    assert (cause.reason, cause.waits_for) == (
        "NotObserved",
        "the operator: the object is at generation 2 and was seen at generation 1",
    )


def test_a_node_that_nobody_may_read_is_not_said_to_be_gone() -> None:
    busy = next(s for s in SITUATIONS if s.reason == Reason.IMAGE_UNAVAILABLE).sight
    gone = causes_of(replace(busy, nodes={}))[0].held_by
    assert gone == ("the kubelet of node node-1, whose Node object is gone",)
    unseen = causes_of(replace(busy, nodes={}, hidden=frozenset({"nodes"})))[0].held_by
    assert unseen == ("the kubelet of node node-1",)


# -- plan ---------------------------------------------------------------------------------------------------------


def sight_with(spec: Raw, *, port: int = PORT, hidden: frozenset[str] = frozenset()) -> Sight:
    backend = {**serving(), "spec": spec}
    claim = raw_claim(port, pod={"name": "smollm2-12345678-0", "uid": POD_UID})
    ledger = () if "portclaims" in hidden else (claim,)
    return Sight("models", "smollm2", backend=backend, pods=(a_pod(spec),), ledger=ledger, hidden=hidden)


SOURCE = {"source": {"persistentVolumeClaim": {"claimName": "weights", "path": "m.gguf"}}}
PLANS: dict[str, tuple[Raw, str, str]] = {
    "nothing": ({}, "stays", "runs on"),
    "more drain time": ({"shutdown": {"drainSeconds": 90}}, "stays", "runs on"),
    "a default written out": ({"runtime": {"slots": 1}}, "stays", "runs on"),
    "another context length": ({"runtime": {"contextLength": 512}}, "restarts", "behind the same port"),
    "another context length, by Surge": (
        {"runtime": {"contextLength": 512}, "rollout": "Surge"},
        "restarts",
        "a second pod starts and serves first",
    ),
    "a pin to the port it has": ({"exposure": {"nodePort": PORT}}, "stays", "runs on"),
    "a pin to another port": ({"exposure": {"nodePort": PORT + 1}}, "restarts", "behind another port"),
    "no replicas": ({"replicas": 0}, "ends", "ScaledDown"),
    "suspend": ({"suspend": True}, "ends", "Suspended"),
}


@pytest.mark.parametrize("hidden", [frozenset(), frozenset({"portclaims"})], ids=["as administrator", "as tenant"])
@pytest.mark.parametrize("case", PLANS)
def test_a_plan_says_what_becomes_of_an_instance_by_the_operators_own_rule(case: str, hidden: frozenset[str]) -> None:
    change, what, how = PLANS[case]
    sight = sight_with({"model": SOURCE}, hidden=hidden)
    assert sight.backend is not None
    found = plan_of(sight, {**sight.backend, "spec": {"model": SOURCE, **change}})
    (step,) = found.steps
    assert step.what == what
    assert how in step.how
    assert found.interrupts == (what in ("restarts", "ends"))


def test_a_plan_marks_only_the_changes_that_restart() -> None:
    sight = sight_with({"model": SOURCE, "replicas": 1})
    assert sight.backend is not None
    edited = {"model": SOURCE, "replicas": 3, "runtime": {"contextLength": 512}, "shutdown": {"escalate": False}}
    changes = plan_of(sight, {**sight.backend, "spec": edited}).changes
    assert {(change.path, change.restarts) for change in changes} == {
        ("replicas", False),
        ("runtime.contextLength", True),
        ("shutdown.escalate", False),
    }


def test_a_spec_that_would_be_refused_stops_nothing_and_says_so() -> None:
    sight = sight_with({"model": SOURCE})
    assert sight.backend is not None
    found = plan_of(sight, {**sight.backend, "spec": {"model": SOURCE, "runtime": {"slots": "many"}}})
    assert found.steps == ()
    assert "spec.runtime.slots" in found.refused[0]


def test_a_new_backend_starts_what_it_asks_for() -> None:
    planned = {**serving(), "spec": {"model": SOURCE, "replicas": 2}}
    found = plan_of(Sight("models", "smollm2"), planned)
    assert [step.what for step in found.steps] == ["starts", "starts"]
    assert not found.interrupts


# -- orders, watch, finalizers ------------------------------------------------------------------------------------


def two_instances(**first: object) -> Raw:
    entries: list[Raw] = [{"ordinal": n, "phase": "Serving", "pod": {"name": f"p{n}", "uid": f"u{n}"}} for n in (0, 1)]
    entries[0] |= first
    return raw_backend({"instances": entries})


STOP = {"since": "2026-05-04T12:00:00Z", "reason": "BackendDeleted", "deadline": "2026-05-04T12:00:30Z"}


@pytest.mark.parametrize(
    ("choice", "backend", "target"),
    [
        (Choice(every=True), two_instances(), "all"),
        (Choice(pod="u9"), two_instances(), "u9"),
        (Choice(instance=1), two_instances(), "u1"),
        (Choice(), two_instances(stop=STOP), "u0"),
        (Choice(), serving(), POD_UID),
    ],
    ids=["all", "by uid", "by ordinal", "the one that is being stopped", "the only one"],
)
def test_an_order_names_the_pod_that_it_is_for(choice: Choice, backend: Raw, target: str) -> None:
    assert target_of(backend, choice) == target


@pytest.mark.parametrize("choice", [Choice(), Choice(instance=7)], ids=["two to choose from", "no such instance"])
def test_an_order_without_a_clear_target_is_not_written(choice: Choice) -> None:
    with pytest.raises(Trouble, match="--instance or --pod"):
        target_of(two_instances(), choice)


def test_watching_ends_when_nothing_starts_or_ends() -> None:
    busy = is_busy().sight.backend
    assert busy is not None
    suspended = raw_backend({"replicas": 0}, suspend=True)
    deleted = {**serving(), "metadata": {**serving()["metadata"], "deletionTimestamp": "2026-05-04T12:00:00Z"}}
    assert [is_settled(raw) for raw in (serving(), busy, suspended, deleted)] == [True, False, True, False]


def test_the_finalizer_of_a_backend_that_is_not_being_deleted_is_not_taken_off() -> None:
    with pytest.raises(Trouble, match="is not being deleted"):
        losses(Sight("models", "smollm2", backend=serving()), pods=True, ports=True)


def test_what_is_given_up_is_named_object_by_object_and_the_backend_comes_last() -> None:
    life = a_life()
    life.ledger[0]["metadata"]["finalizers"] = ["modelbackend.dev/termination"]
    found = losses(life, pods=True, ports=True)
    assert [loss.kind for loss in found] == [Kind.POD, Kind.CLAIM, Kind.BACKEND]
    assert "may be given to another while a process" in found[1].gives_up
    assert "smollm2-12345678-0 may run on" in found[2].gives_up
    assert [loss.kind for loss in losses(life, pods=False, ports=False)] == [Kind.BACKEND]


# -- timeline -----------------------------------------------------------------------------------------------------


def test_a_life_is_drawn_lane_by_lane_without_gaps() -> None:
    life = timeline_of(a_life(), NOW)
    pod, port = life.lanes
    assert [one.tone for one in pod.spans] == [
        Tone.WAITING,
        Tone.LOADING,
        Tone.SERVING,
        Tone.DRAINING,
        Tone.ENDING,
        Tone.UNPROVEN,
    ]
    assert all(one.end == following.start for one, following in zip(pod.spans, pod.spans[1:], strict=False))
    assert [one.tone for one in port.spans] == [Tone.HELD, Tone.UNPROVEN]
    assert life.start == later(-900)


def test_a_drawing_is_well_formed_and_lets_no_message_into_its_markup() -> None:
    life = timeline_of(a_life(), NOW)
    svg = ElementTree.fromstring(as_svg(life))
    assert any("<& nothing proves it" in (title.text or "") for title in svg.iter("{http://www.w3.org/2000/svg}title"))
    assert "<& nothing" not in as_html(life)


def test_a_backend_of_which_nothing_is_kept_has_an_empty_picture() -> None:
    life = timeline_of(Sight("models", "smollm2", backend=serving()), NOW)
    assert life.lanes == ()
    ElementTree.fromstring(as_svg(life))


# -- words --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "written"),
    [(0, "0s"), (59, "59s"), (60, "1m"), (200, "3m20s"), (7500, "2h5m"), (90_000, "1d1h"), (600_000, "6d"), (-5, "0s")],
)
def test_spans_are_written_as_kubectl_does(seconds: int, written: str) -> None:
    assert span(timedelta(seconds=seconds)) == written


EVIL = "\x1b]0;owned\x07 \x9b2J\r"


def test_no_sequence_that_others_wrote_reaches_the_terminal() -> None:
    raw = serving()
    del raw["status"]["conditions"]
    raw["status"]["instances"][0] |= {"phase": "Failing", "reason": "Crashing", "message": EVIL}
    sight = Sight("models", "smollm2", backend=raw, events=(an_event(EVIL),))
    shown = [
        click.unstyle(words(sight, causes_of(sight), NOW)),
        table(["message"], [[EVIL]]),
        *(entry.line(NOW) for entry in seen(raw)),
        as_text(timeline_of(sight, NOW)),
        str(Trouble(Exit.NO, EVIL)),
    ]
    for text in shown:
        assert "^[]0;owned^G" in text
        assert not set(text) & set("\x1b\x07\x9b\r")


def an_event(message: str) -> Raw:
    return {"firstTimestamp": "2026-05-04T11:59:00Z", "type": "Warning", "reason": "Crashing", "message": message}


def test_an_instant_of_another_day_has_its_date() -> None:
    assert clock_time(NOW, NOW) == "12:00:00 UTC"
    assert clock_time(NOW, NOW + timedelta(days=1)) == "2026-05-04 12:00:00 UTC"
    assert until_words(later(16), NOW) == "12:00:16 UTC (in 16s)"


NOT_FOUND = {"reason": "NotFound", "details": {"name": "x"}, "message": "not found"}


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (Answer(0, {"message": "no answer"}), Exit.UNAVAILABLE),
        (Answer(401), Exit.NOT_ALLOWED),
        (Answer(403), Exit.NOT_ALLOWED),
        (Answer(404, NOT_FOUND), Exit.NOT_FOUND),
        (Answer(404), Exit.UNAVAILABLE),
        (Answer(409), Exit.CONFLICT),
        (Answer(422), Exit.NO),
        (Answer(503), Exit.UNAVAILABLE),
    ],
)
def test_an_answer_of_the_api_server_has_its_exit_code(answer: Answer, code: Exit) -> None:
    trouble = trouble_of(answer, "read pods")
    assert (trouble.exit_code, "read pods" in trouble.message) == (code, True)
