//! Hunts of tests: a correct test passes; a hunt finds the line of a wrong test.
use adverb::testing::{Hunt, World, pair_with};
use adverb::{Notify, Result};
use std::time::Duration;

const MESSAGES: usize = 20;

/// A separate thread sends the messages; `wait` waits for all of them.
fn receive(world: &World, wait: impl Fn(&World) -> Result<()>) -> Result<()> {
    let inbox = world.b.buffer(64)?;
    for _ in 0..MESSAGES {
        world.b.qp.recv(&inbox).post()?;
    }
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| -> Result<()> {
            for _ in 0..MESSAGES {
                world.a.qp.send("x").post()?;
                world.a.completion()?;
            }
            Ok(())
        });
        wait(world)?;
        sender.join().expect("the sender does not panic")
    })
}

/// HUN-9: arm, poll until empty, wait.
#[test]
fn a_right_test_survives() {
    let right = |world: &World| {
        receive(world, |world| {
            let mut got = 0;
            loop {
                world.b.cq.notify(Notify::Next)?;
                while world.b.cq.poll_one()?.is_some() {
                    got += 1;
                }
                if got == MESSAGES {
                    return Ok(());
                }
                drop(world.b.channel.next_event()?);
            }
        })
    };
    let survived = Hunt::new().runs(60).time(Duration::from_secs(20)).run(right);
    let survived = survived.unwrap_or_else(|found| panic!("{found}"));
    assert!(survived.places >= 4 && survived.runs > 1, "{survived:?}");
}

/// HUN-17: a test that counts on messages of UC is right, so none is lost.
#[test]
fn a_test_that_counts_on_messages_survives() {
    let right = |_: &World| {
        let (a, b) = pair_with(|qp| qp.uc())?;
        let inbox = b.buffer(64)?;
        b.qp.recv(&inbox).post()?;
        a.qp.send("x").post()?;
        a.completion()?;
        b.completion()?;
        Ok(())
    };
    let survived = Hunt::new().runs(40).time(Duration::from_secs(20)).run(right);
    let survived = survived.unwrap_or_else(|found| panic!("{found}"));
    assert!(survived.runs > 1, "{survived:?}");
}

/// HUN-9: the test polls until empty and then arms. The hunt finds the line of the arm, also again.
#[test]
fn a_lost_wake_up_is_found() {
    let line = line!() + 11;
    let wrong = |world: &World| {
        receive(world, |world| {
            let mut got = 0;
            loop {
                while world.b.cq.poll_one()?.is_some() {
                    got += 1;
                }
                if got == MESSAGES {
                    return Ok(());
                }
                world.b.cq.notify(Notify::Next)?;
                drop(world.b.channel.next_event()?);
            }
        })
    };
    let found = Hunt::new().time(Duration::from_secs(60)).run(wrong).expect_err("it is wrong");
    let text = found.to_string();
    assert!(found.what.contains("lost wake-up") || found.what.contains("hangs"), "{text}");
    let again = Hunt::new().replay(&found.schedule).run(wrong);
    // On a busy machine the moment may be missed in every replay.
    assert!(again.is_err() || found.again.failed < 5, "{text}");
    assert!(
        text.contains(&format!("hunt.rs:{line}:")) || found.chosen.is_empty(),
        "line {line}: {text}"
    );
}

/// HUN-9: a post that waits for its place in the queue is a place of choice like any other post.
/// The post waits until the queue is no longer full.
#[test]
fn a_post_that_waits_is_hunted() {
    let survived = |runs: usize, test: fn(&World) -> Result<()>| {
        let survived = Hunt::new().runs(runs).time(Duration::from_secs(20)).run(test);
        survived.unwrap_or_else(|found| panic!("{found}")).places
    };
    // Only posts count here: whether a call that waits for a completion also arms depends on
    // timing.
    assert_eq!(survived(1, |world| world.a.qp.send("x").post()), 1);
    assert_eq!(survived(20, |world| world.a.qp.send("x").post_within(Duration::from_secs(5))), 1);
    survived(20, |world| {
        let inbox = world.b.buffer(64)?;
        for _ in 0..3 {
            world.b.qp.recv(&inbox).post()?;
            world.a.qp.send("x").post_within(Duration::from_secs(5))?;
            world.a.completion()?;
            world.b.completion()?;
        }
        Ok(())
    });
}

/// HUN-9: a report names an error or a panic of the test.
#[test]
fn a_test_that_fails_by_itself_is_told_so() {
    let found = Hunt::new().run(|_| panic!("by itself {}", 7)).expect_err("it panics");
    assert!(found.what.contains("by itself 7") && found.run == 1, "{found}");
    assert!(found.to_string().contains("the test fails by itself"), "{found}");
    let found = Hunt::new().run(|_| Err(adverb::Error::TimedOut)).expect_err("it fails");
    assert!(found.what.starts_with("the test fails: "), "{found}");
}
