//! `simulate`: tries plans and seeds until a law is broken, or tells the story of one.

#![allow(clippy::print_stdout, reason = "a program that prints")]

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use clap::Parser;
use simulation::{Ending, Plan, play, shortened};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Lets worlds happen in which everything fails
#[derive(Debug, Parser)]
struct Args {
    /// How many worlds, each of the next seed
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Tell the story of this seed
    #[arg(long)]
    replay: Option<u64>,
    /// Leave out what does not matter
    #[arg(long, requires = "replay")]
    short: bool,
    /// Write the plan that breaks a law to a file
    #[arg(long)]
    write: Option<PathBuf>,
    /// Try the plans of these files first
    #[arg(long, num_args = 1..)]
    plans: Vec<PathBuf>,
    /// Try each plan with so many further seeds, which decide what is lost and late
    #[arg(long, default_value_t = 0)]
    further: u64,
    /// Number of threads
    #[arg(long, default_value_t = 2)]
    threads: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    if let Some(seed) = args.replay {
        return replay(seed, &args);
    }
    match args.plans.iter().all(|file| keeps_laws(file, &args)) {
        true => try_seeds(&args),
        false => ExitCode::FAILURE,
    }
}

/// Each of so many seeds is played twice more: one seed has to make one story.
const REPEATED_EVERY: u64 = 250;

fn is_the_same_again(seed: u64) -> bool {
    let plan = Plan::from_seed(seed);
    play(&plan, true) == play(&plan, true)
}

fn keeps_laws(file: &PathBuf, args: &Args) -> bool {
    let text = fs::read_to_string(file).expect("the file of a plan");
    let mut plan = Plan::from_text(&text).expect("a plan");
    for seed in plan.seed..=plan.seed + args.further {
        plan.seed = seed;
        let ending = play(&plan, true);
        if let Some(law) = &ending.broken {
            ending.story.iter().for_each(|line| println!("{line}"));
            println!("plan {}: {law}", file.display());
            write(plan, &ending, args);
            return false;
        }
    }
    true
}

/// Writes a plan to the file for it, with the law that it breaks.
fn write(mut plan: Plan, ending: &Ending, args: &Args) {
    plan.law.clone_from(&ending.broken);
    if let Some(file) = &args.write {
        fs::write(file, plan.to_text()).expect("a file that can be written");
    }
}

fn replay(seed: u64, args: &Args) -> ExitCode {
    let mut plan = Plan::from_seed(seed);
    if args.short {
        plan = shortened(&plan);
    }
    println!("{:?}", plan.setting);
    let ending = play(&plan, true);
    ending.story.iter().for_each(|line| println!("{line}"));
    write(plan, &ending, args);
    match ending.broken {
        Some(_) => ExitCode::FAILURE,
        None => ExitCode::SUCCESS,
    }
}

fn try_seeds(args: &Args) -> ExitCode {
    let (is_broken, began) = (AtomicBool::new(false), Instant::now());
    let (next, commits) = (AtomicU64::new(args.from), AtomicU64::new(0));
    let end = args.from + args.seeds;
    thread::scope(|scope| {
        for _ in 0..args.threads {
            scope.spawn(|| {
                while !is_broken.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let mut ending = play(&Plan::from_seed(seed), false);
                    if ending.broken.is_none()
                        && seed.is_multiple_of(REPEATED_EVERY)
                        && !is_the_same_again(seed)
                    {
                        ending.broken = Some("the seed makes two stories".to_owned());
                    }
                    commits.fetch_add(ending.commits as u64, Ordering::Relaxed);
                    if let Some(law) = ending.broken {
                        is_broken.store(true, Ordering::Relaxed);
                        println!("seed {seed}: {law}");
                        println!("make simulate REPLAY={seed}");
                    }
                }
            });
        }
    });
    let seconds = began.elapsed().as_secs_f64();
    let tried = next.load(Ordering::Relaxed).min(end) - args.from;
    println!(
        "{tried} seeds in {seconds:.1} s, {:.0} a second",
        tried as f64 / seconds
    );
    println!("{} commits", commits.load(Ordering::Relaxed));
    match is_broken.load(Ordering::Relaxed) {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}
