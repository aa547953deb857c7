//! `doctor`: say what is wrong with a segment, and with --repair give back what the dead left.

mod findings;
mod processes;

use shmsched::{Deadline, Location, MemberInfo, MemberState, Observer, Snapshot};

use self::findings::{Finding, Level};
use crate::cli::Doctor;
use crate::exit::{Code, Failure, Outcome};
use crate::output::json::{self, Form, Repaired};
use crate::output::{self, counted, escaped, limit, span};

pub fn doctor(arguments: &Doctor) -> Outcome {
    let location = arguments.existing.locate()?;
    let trust = arguments.existing.trust_foreign;
    let repaired = match arguments.repair {
        true => Some(repair(&location, trust)?),
        false => None,
    };
    let mut observer = super::observe(&location, trust)?;
    let snapshot = super::snapshot(&mut observer, &location)?;
    let mut findings = findings::examine(&snapshot, &processes::Proc(&observer));
    findings.extend(surroundings(&observer, &location));
    let ok = findings
        .iter()
        .all(|finding| finding.level != Level::Problem);

    let text = match arguments.json {
        true => json::text(
            &json::Doctor::new(&snapshot.segment, ok, repaired, &findings),
            Form::Pretty,
        ),
        false => {
            let mut text = String::new();
            if let Some(Repaired { dead, reclaimed }) = repaired {
                let (dead, reclaimed) = (
                    counted(dead.into(), "dead member"),
                    counted(reclaimed.into(), "slot"),
                );
                text.push_str(&format!(
                    "{location}: repaired: {dead} cleaned, {reclaimed} given back\n"
                ));
            }
            for finding in &findings {
                text.push_str(&format!(
                    "{location}: {}: {}\n",
                    finding.level.name(),
                    escaped(&finding.text)
                ));
            }
            if ok {
                text.push_str(&format!("{location}: healthy{}\n", in_use(&snapshot)));
            }
            text
        }
    };
    output::print(&text)?;
    Ok(if ok { 0 } else { Code::Found as u8 })
}

/// How much of each gate is in use: `, 1 of 2 running, 0 waiting`.
fn in_use(snapshot: &Snapshot) -> String {
    let scheduler = snapshot.scheduler.as_ref().map(|scheduler| {
        let (running, waiters) = (scheduler.running, scheduler.waiters);
        let cap = limit(scheduler.concurrency);
        format!(", {running} of {cap} running, {waiters} waiting")
    });
    let limiter = snapshot.limiter.as_ref().map(|limiter| {
        let (tokens, rate) = (limiter.tokens, limiter.tokens_per_second);
        format!(", {tokens} tokens at {rate}/s, {} waiting", limiter.waiters)
    });
    let pacer = snapshot.pacer.as_ref().map(|pacer| {
        let interval = span(pacer.interval);
        format!(", starts every {interval}, {} waiting", pacer.waiting)
    });
    [scheduler, limiter, pacer].into_iter().flatten().collect()
}

/// Gives back what dead members left. Attaching also resets a segment of an earlier boot. No process is signalled.
fn repair(location: &Location, trust_foreign: bool) -> Result<Repaired, Failure> {
    let mut observer = super::observe(location, trust_foreign)?;
    let before = super::snapshot(&mut observer, location)?;
    let segment = super::attach(location, trust_foreign, "doctor", Deadline::Never)?;
    let looked = segment.look();
    let after = super::snapshot(&mut observer, location)?;
    // Attaching looks, too, and mostly is who finds them.
    let reclaimed = |snapshot: &Snapshot| {
        let scheduler = snapshot.scheduler.as_ref();
        scheduler.map_or(0, |scheduler| scheduler.reclaimed)
    };
    let given_back = reclaimed(&after).saturating_sub(reclaimed(&before));
    let cleaned = before.members.iter().filter(|member| {
        let same = |other: &MemberInfo| {
            (other.member, other.generation) == (member.member, member.generation)
        };
        member.state == MemberState::Dead && !after.members.iter().any(same)
    });
    Ok(Repaired {
        dead: looked.dead.max(cleaned.count() as u32),
        reclaimed: looked
            .reclaimed
            .max(u32::try_from(given_back).unwrap_or(u32::MAX)),
    })
}

/// What is to be said of the file rather than of what is in it.
fn surroundings(observer: &Observer, location: &Location) -> Vec<Finding> {
    let mut findings = Vec::new();
    if observer.segment_gone() {
        findings.push(Finding::of_segment(
            "gone",
            Level::Problem,
            "its file was removed or replaced just now; look again",
        ));
    }
    if let Some(stays) = location.cleared_at_logout() {
        let text = format!(
            "your last log-out deletes it (RemoveIPC of logind); one below {} stays, see SHMSCHED_DIR",
            stays.display()
        );
        findings.push(Finding::of_segment("cleared-at-logout", Level::Note, text));
    }
    findings
}
