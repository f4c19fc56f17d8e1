//! The star join of benchmarks/star.py: sum and count by region, category and year.
//!
//! Argument: the number of facts. Prints `NAME SECONDS` for each step, in CPU time, and `memory BYTES`.

use differential_dataflow::input::Input;
use differential_dataflow::operators::*;
use differential_peer::{cpu_seconds, resident_set};
use timely::dataflow::operators::probe::Handle;

type Fact = (u32, u32, u32, i64);

/// A generator of Knuth's, good enough to spread facts over groups.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit
    }

    fn fact(&mut self) -> Fact {
        (self.below(1000) as u32, self.below(1000) as u32, self.below(1000) as u32, self.below(1_000_000) as i64)
    }
}

fn main() {
    let count: usize = std::env::args().nth(1).unwrap().parse().unwrap();
    timely::execute_directly(move |worker| {
        let mut probe = Handle::new();
        let (mut facts, mut one, mut two, mut three) = worker.dataflow(|scope| {
            let (facts_input, facts) = scope.new_collection::<(u64, Fact), isize>();
            let (one_input, one) = scope.new_collection::<(u32, u32), isize>();
            let (two_input, two) = scope.new_collection::<(u32, u32), isize>();
            let (three_input, three) = scope.new_collection::<(u32, u32), isize>();
            facts
                .map(|(_, (a, b, c, amount))| (a, (b, c, amount)))
                .join_map(one, |_, (b, c, amount), region| (*b, (*c, *amount, *region)))
                .join_map(two, |_, (c, amount, region), category| (*c, (*amount, *region, *category)))
                .join_map(three, |_, (amount, region, category), year| ((*region, *category, *year), *amount))
                .explode(|(group, amount)| Some((group, (amount as isize, 1isize))))
                .count_total()
                .probe_with(&mut probe);
            (facts_input, one_input, two_input, three_input)
        });
        let mut time = 1u64;
        let mut random = Random(1);
        let mut number = 0u64;
        for i in 0..1000u32 {
            one.insert((i, i % 10));
            two.insert((i, i % 20));
            three.insert((i, i % 8));
        }
        let start = cpu_seconds();
        for _ in 0..count {
            facts.insert((number, random.fact()));
            number += 1;
        }
        macro_rules! settle {
            () => {
                facts.advance_to(time);
                one.advance_to(time);
                two.advance_to(time);
                three.advance_to(time);
                time += 1;
                facts.flush();
                one.flush();
                two.flush();
                three.flush();
                worker.step_while(|| probe.less_than(facts.time()));
            };
        }
        settle!();
        println!("initial {}", cpu_seconds() - start);
        println!("memory {}", resident_set());
        for (name, rows, repeats) in [("1", 1, 20), ("1000", 1000, 5), ("100000", 100_000, 3)] {
            for _ in 0..repeats {
                let batch: Vec<(u64, Fact)> = (0..rows).map(|i| (number + i as u64, random.fact())).collect();
                number += rows as u64;
                let start = cpu_seconds();
                for fact in batch {
                    facts.insert(fact);
                }
                settle!();
                println!("{} {}", name, cpu_seconds() - start);
            }
        }
        for i in 1..6u32 {
            let start = cpu_seconds();
            one.remove((i, i % 10));
            one.insert((i, 0));
            settle!();
            println!("dimension {}", cpu_seconds() - start);
        }
    });
}
