//! `cargo xtask model`: exhausts the models within their bounds and takes each guard away once.

use std::process::ExitCode;

use consign_model::plan::{self, Extent};
use consign_model::report::Report;

const USAGE: &str = "\
usage: consign-model [--ci | --full] [--json] [--trace GUARD]

  --ci           what every change is checked with, in about a minute (default)
  --full         larger bounds, in minutes
  --json         one JSON document instead of the table
  --trace GUARD  only takes this guard away, and prints the steps that break something
";

struct Options {
    extent: Extent,
    json: bool,
    trace: Option<String>,
}

fn main() -> ExitCode {
    let Some(options) = options() else {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    };
    if let Some(guard) = options.trace {
        return trace(&guard);
    }
    let models = plan::models(options.extent, |model| {
        eprintln!("{}: {} states, {:.1} s", model.id, model.states, model.seconds);
    });
    let plan = if options.extent == Extent::Ci { "ci" } else { "full" };
    let mutants = plan::mutants(|mutant| {
        let steps = mutant.trace.as_ref().map_or(0, |trace| trace.steps.len());
        eprintln!("{} without {}: {steps} steps", mutant.model, mutant.guard);
    });
    let report = Report { plan, models, mutants };
    if options.json {
        println!("{}", report.json());
    } else {
        print!("{}", report.text());
    }
    if report.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The steps that break something without the guard.
fn trace(guard: &str) -> ExitCode {
    let mutants = plan::mutants(|_| ());
    let mut wanted = mutants.iter().filter(|mutant| mutant.guard == guard).peekable();
    if wanted.peek().is_none() {
        eprintln!("consign-model: no model has a guard `{guard}`; the table lists all of them");
        return ExitCode::from(2);
    }
    for mutant in wanted {
        match &mutant.trace {
            Some(trace) => print!("{} without {}: {}", mutant.model, mutant.guard, trace.text()),
            None => println!("{} without {}: nothing breaks", mutant.model, mutant.guard),
        }
    }
    ExitCode::SUCCESS
}

fn options() -> Option<Options> {
    let mut options = Options { extent: Extent::Ci, json: false, trace: None };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--ci" => options.extent = Extent::Ci,
            "--full" => options.extent = Extent::Full,
            "--json" => options.json = true,
            "--trace" => options.trace = Some(arguments.next()?),
            _ => return None,
        }
    }
    Some(options)
}
