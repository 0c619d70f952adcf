//! Brokers that die, are cut off or have no room.

use super::{SOON, shared_brokers};
use crate::{
    judge::Judge,
    row::{Figures, Skipped, World},
};
use anyhow::{Result, bail, ensure};
use starling_e2e::{OwnBroker, Plan, Proc, Proxy, Scripted, Swarm, SwarmOptions, Way, eventually, until};
use starling_llm::{
    Purpose,
    mock::{MockAction, scripts::work_reply},
};
use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};
use tokio::time::sleep;

/// How long the network is cut.
const CUT: Duration = Duration::from_secs(60);

/// The only broker is killed in the middle of the work, and comes back with what it had.
pub(super) async fn killed(world: World) -> Result<Figures> {
    let broker = OwnBroker::start().await?;
    outage(world, &broker.address, async |proxy| {
        broker.signal("KILL")?;
        until("the broker is gone", SOON, || async { Ok(!broker.runs()) }).await?;
        proxy.cut_off();
        broker.start_again().await
    })
    .await
}

/// Nothing passes between the services and the broker.
pub(super) async fn unreachable_both_ways(world: World) -> Result<Figures> {
    cut(world, &[Way::ToBroker, Way::FromBroker]).await
}

/// What the services say does not arrive; what the broker says would.
pub(super) async fn unreachable_there(world: World) -> Result<Figures> {
    cut(world, &[Way::ToBroker]).await
}

/// What the services say arrives, and they do not hear the answers.
pub(super) async fn unreachable_back(world: World) -> Result<Figures> {
    cut(world, &[Way::FromBroker]).await
}

async fn cut(world: World, ways: &[Way]) -> Result<Figures> {
    outage(world, &shared_brokers()?, async |proxy: &Proxy| {
        ways.iter().for_each(|way| proxy.cut(*way));
        sleep(CUT).await; // the fault itself
        Ok(())
    })
    .await
}

/// A network between the services and `brokers` with an outage in the middle of the work.
async fn outage(
    world: World,
    brokers: &str,
    fault: impl AsyncFnOnce(&Proxy) -> Result<()>,
) -> Result<Figures> {
    const INTENTS: usize = 3;
    let (model, proxy) = (slow_model(30), Proxy::before(brokers).await?);
    let mut swarm = Swarm::start(SwarmOptions {
        brokers: Some(brokers.to_owned()),
        through: Some(proxy.address().to_owned()),
        ..world.options(&model, 3)
    })
    .await?;
    let mut judge = Judge::new(&model);
    for n in 0..INTENTS {
        judge.publish(&swarm, &format!("in an outage {n}")).await?;
    }
    eventually("work goes on", SOON, || model.calls.of(Purpose::Judge).len() >= 10).await;
    let closed = swarm.model.stats().closed_by_client;
    fault(&proxy).await?;
    // The books are closed while nobody can commit.
    proxy.cut_off();
    judge.all_lost(&swarm.logs).await?;
    proxy.mend();
    alive(&mut swarm)?;
    judge.publish(&swarm, "after the outage").await?;
    judge.settle(&swarm, 2 * SOON).await?;
    // While the broker goes, and until all members are back, partitions are lost and move more than once. Calls that are given up for it are closed.
    judge.allow(usize::try_from(swarm.model.stats().closed_by_client - closed)?);
    let found = judge.conclude(&swarm, 2 * SOON).await?;
    alive(&mut swarm)?;
    found.all_succeeded_but(&["uncounted_plan_calls"])
}

/// Of three brokers one is killed; two are enough.
pub(super) async fn one_of_three_killed(world: World) -> Result<Figures> {
    const INTENTS: usize = 3;
    let broker = OwnBroker::start_with(&["--brokers", "3"]).await?;
    let (model, proxy) = (slow_model(30), Proxy::before(&broker.address).await?);
    let options = SwarmOptions {
        brokers: Some(broker.address.clone()),
        through: Some(proxy.address().to_owned()),
        ..world.options(&model, 3)
    };
    let mut swarm = Swarm::start(options.set("topics.min_insync_replicas=2")).await?;
    let mut judge = Judge::new(&model);
    for n in 0..INTENTS {
        judge.publish(&swarm, &format!("with one broker less {n}")).await?;
    }
    eventually("work goes on", SOON, || model.calls.of(Purpose::Judge).len() >= 10).await;
    let victim = rand::random_range(1..=3);
    println!("broker {victim} is killed");
    broker.signal_one(victim, "KILL")?;
    // Leaders and the groups' coordinators move; what that makes members lose may be done again. The books are closed
    // while nobody can commit.
    proxy.cut_off();
    judge.all_lost(&swarm.logs).await?;
    let closed = swarm.model.stats().closed_by_client;
    proxy.mend();
    judge.publish(&swarm, "after the broker was killed").await?;
    judge.settle(&swarm, 2 * SOON).await?;
    judge.allow(usize::try_from(swarm.model.stats().closed_by_client - closed)?);
    let found = judge.conclude(&swarm, 2 * SOON).await?;
    alive(&mut swarm)?;
    found.all_succeeded_but(&["uncounted_plan_calls"])
}

/// The broker's disk is full, which ends it; it comes back when there is room.
pub(super) async fn disk_full(world: World) -> Result<Figures> {
    let disk = SmallDisk::mount()?;
    let broker = OwnBroker::start_in(&disk.folder.join("broker")).await?;
    outage(world, &broker.address, async |proxy| {
        disk.fill()?;
        // Whoever works goes on writing, until there is no room for it.
        until("the broker has ended", SOON, || async { Ok(!broker.runs()) }).await?;
        proxy.cut_off();
        disk.make_room()?;
        broker.start_again().await
    })
    .await
}

/// A file system of its own for one broker.
struct SmallDisk {
    folder: PathBuf,
}

impl SmallDisk {
    fn mount() -> Result<Self> {
        let folder = tempfile::tempdir()?.keep();
        let disk = Self { folder };
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=192m", "starling-faults"])
            .arg(&disk.folder)
            .output();
        match mounted {
            Ok(output) if output.status.success() => Ok(disk),
            Ok(output) => {
                bail!(Skipped(format!("cannot mount: {}", String::from_utf8_lossy(&output.stderr).trim())))
            }
            Err(error) => bail!(Skipped(format!("cannot mount: {error}"))),
        }
    }

    fn filler(&self) -> PathBuf {
        self.folder.join("filler")
    }

    fn fill(&self) -> Result<()> {
        let mut file = std::fs::File::create(self.filler())?;
        let block = vec![1_u8; 1 << 16];
        while std::io::Write::write_all(&mut file, &block).is_ok() {} // an error: the disk is full
        Ok(())
    }

    fn make_room(&self) -> Result<()> {
        Ok(std::fs::remove_file(self.filler())?)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        unmount(&self.folder);
        let _ = std::fs::remove_dir(&self.folder); // where it was mounted
    }
}

fn unmount(folder: &Path) {
    let _ = Command::new("umount").arg("-l").arg(folder).output(); // it may not be mounted
}

/// A model that takes its time, so that a fault finds calls open, results on the way and tasks that wait.
fn slow_model(tasks: usize) -> Scripted {
    Scripted::new(Plan::independent(tasks)).but(|call| {
        (call.purpose == Purpose::Work)
            .then(|| MockAction::reply_after(Duration::from_millis(400), work_reply(call)))
    })
}

/// No process has ended by itself.
fn alive(swarm: &mut Swarm) -> Result<()> {
    let all = swarm.planners.iter_mut().chain(&mut swarm.workers).chain(&mut swarm.critics);
    all.into_iter().try_for_each(|process: &mut Proc| {
        let ended = process.ended()?;
        ensure!(ended.is_none(), "{} has ended: {ended:?}:\n{}", process.name, process.last_lines());
        Ok(())
    })
}
