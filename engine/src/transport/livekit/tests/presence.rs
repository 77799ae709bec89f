//! Who is in the room: when calls begin, who leaves, and which of two agents stays.

use super::*;

#[test]
fn each_person_who_leaves_is_told_once_and_the_last_one_at_the_end() {
    use proto::DisconnectReason::{ClientInitiated, ConnectionTimeout, SignalClose};
    let (maria, tom) = (person("PA_1", "maria", &[]), person("PA_2", "tom", &[]));
    let mut harness = Harness::joined(vec![maria.clone(), tom.clone()]);
    harness.run(Duration::from_secs(1));
    assert_eq!(harness.take_events(), ["2 people", "connected"]);
    harness.signal(update(vec![left(maria.clone(), ConnectionTimeout)]));
    harness.run(STEP);
    assert_eq!(harness.take_events(), ["maria left", "1 people"]);
    assert_eq!(harness.peer.left_at(), None);
    harness.signal(update(vec![left(tom.clone(), ClientInitiated)]));
    assert!(harness.peer.left_at().is_some());
    harness.signal(update(vec![tom.clone()]));
    assert_eq!(harness.peer.left_at(), None, "he is back");
    assert_eq!(harness.peer.take_last_to_leave(), None);
    harness.run(STEP);
    assert_eq!(harness.take_events(), ["0 people", "1 people"]);
    // Both leave at once, and then somebody else comes.
    harness.signal(update(vec![maria.clone()]));
    let both = vec![left(tom.clone(), ClientInitiated), left(maria, ClientInitiated)];
    harness.signal(update(both));
    harness.signal(update(vec![tom.clone()]));
    harness.run(STEP);
    let expected = ["2 people", "tom left", "0 people", "maria left", "1 people"];
    assert_eq!(harness.take_events(), expected);
    harness.signal(update(vec![left(tom, SignalClose)]));
    assert_eq!(harness.peer.left_at(), None);
    assert_eq!(harness.peer.take_last_to_leave().as_deref(), Some("tom"));
    let gone = harness.peer.last_heard().unwrap();
    harness.run(Duration::from_secs(2));
    assert_eq!(harness.peer.last_heard(), Some(gone), "the server's packets are no signs of life");
}

#[test]
fn everybody_in_a_crowd_is_present_and_may_write() {
    let crowd = |from: usize, to: usize| -> Vec<ParticipantInfo> {
        (from..to).map(|n| person(&format!("PA_{n}"), &format!("id-{n}"), &[])).collect()
    };
    let mut harness = Harness::joined(crowd(0, 100));
    harness.run(Duration::from_secs(1));
    assert_eq!(harness.take_events(), ["100 people", "connected"]);
    let reason = proto::DisconnectReason::ClientInitiated;
    harness.signal(update(crowd(0, 99).into_iter().map(|one| left(one, reason)).collect()));
    assert_eq!(harness.peer.left_at(), None, "one is still there");
    harness.run(STEP);
    let events = harness.take_events();
    assert_eq!((events.len(), events.last().map(String::as_str)), (100, Some("1 people")));
    let request = proto::RpcRequest {
        id: "7".into(),
        method: "visavis.interrupt".into(),
        ..proto::RpcRequest::default()
    };
    harness.send("id-99", Value::RpcRequest(request));
    assert_eq!(harness.take_events(), ["Interrupt by rpc"]);
}

#[test]
fn the_agent_with_the_later_call_yields() {
    let mut harness = Harness::joined(vec![agent("PA_2", "agent-2", "2000")]);
    harness.run(STEP);
    assert_eq!(harness.take_events(), [""; 0]);
    harness.take_requests();
    harness.signal(update(vec![agent("PA_3", "agent-3", "999")]));
    harness.run(STEP);
    assert_eq!(harness.take_events(), [format!("closed {:?}", RoomEnd::Superseded)]);
    let requests = harness.take_requests();
    assert!(matches!(&requests[..], [Request::Leave(_)]), "{requests:?}");
}

#[test]
fn only_an_agent_of_ours_can_make_the_agent_yield() {
    let older = agent("PA_2", "agent-2", "1");
    let standard = proto::participant_info::Kind::Standard as i32;
    let a_person = ParticipantInfo { kind: standard, ..older.clone() };
    let ourselves = ParticipantInfo { identity: "agent-1".into(), ..older.clone() };
    let mut another = older.clone();
    another.attributes.insert("lk.agent_name".into(), "another".into());
    let mut nameless = older;
    nameless.attributes.remove("lk.agent_name");
    for participant in [a_person, ourselves, another, nameless] {
        let mut harness = Harness::joined(vec![participant.clone()]);
        harness.signal(update(vec![participant.clone()]));
        harness.run(STEP);
        let events = harness.take_events();
        assert!(!events.iter().any(|event| event.starts_with("closed")), "{participant:?}");
    }
}

#[test]
fn a_call_begins_when_the_agent_is_connected_and_somebody_is_there() {
    let mut harness = Harness::joined(vec![]);
    harness.run(Duration::from_secs(1));
    assert!(harness.peer.is_in_room());
    assert_eq!(harness.take_events(), [""; 0], "nobody is there");
    harness.signal(update(vec![person("PA_1", "maria", &["TR_1"])]));
    harness.run(STEP);
    assert_eq!(harness.take_events(), ["1 people", "connected"]);
    let requests = harness.take_requests();
    let [Request::Subscription(subscription)] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!(
        (&subscription.track_sids[..], subscription.subscribe),
        (&["TR_1".to_owned()][..], true)
    );
}
