//! The closure of a graph, right-linear, while edges leave and come back.
//!
//! Arguments: a file of edges, a file of edges to change. Prints `initial SECONDS ROWS BYTES`, then `DELETE INSERT LOST` for each
//! change, in seconds of CPU time and rows.

use std::cell::Cell;
use std::rc::Rc;

use differential_dataflow::input::Input;
use differential_dataflow::operators::*;
use differential_peer::{cpu_seconds, read_pairs, resident_set};
use timely::dataflow::operators::probe::Handle;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let (edges, changes) = (read_pairs(&arguments[1]), read_pairs(&arguments[2]));
    timely::execute_directly(move |worker| {
        let mut probe = Handle::new();
        let rows = Rc::new(Cell::new(0i64));
        let counted = rows.clone();
        let mut input = worker.dataflow(|scope| {
            let (input, edge) = scope.new_collection::<(u32, u32), isize>();
            let closure = edge.clone().iterate(|scope, inner| {
                let edge = edge.enter(scope);
                // closure(x, y) :- edge(x, z), closure(z, y).
                let steps = edge.clone().map(|(x, z)| (z, x));
                inner.join_map(steps, |_, y, x| (*x, *y)).concat(edge).distinct()
            });
            closure.inspect(move |(_, _, times)| counted.set(counted.get() + *times as i64)).probe_with(&mut probe);
            input
        });
        let mut time = 1;
        let mut settle = |input: &mut differential_dataflow::input::InputSession<_, (u32, u32), isize>| {
            input.advance_to(time);
            time += 1;
            input.flush();
            worker.step_while(|| probe.less_than(input.time()));
        };
        let start = cpu_seconds();
        for edge in edges {
            input.insert(edge);
        }
        settle(&mut input);
        println!("initial {} {} {}", cpu_seconds() - start, rows.get(), resident_set());
        for edge in changes {
            let (before, start) = (rows.get(), cpu_seconds());
            input.remove(edge);
            settle(&mut input);
            let (lost, middle) = (before - rows.get(), cpu_seconds());
            input.insert(edge);
            settle(&mut input);
            println!("{} {} {}", middle - start, cpu_seconds() - middle, lost);
        }
    });
}
