//! closure(x, y) :- edge(x, y).  closure(x, y) :- edge(x, z), closure(z, y).

#[path = "../../session.rs"]
mod session;

use dbsp::typed_batch::IndexedZSetReader;
use dbsp::utils::Tup2;
use dbsp::{OrdZSet, Runtime, Stream};
use session::{now, Session};

type Pair = Tup2<u32, u32>;

fn main() {
    let mut session = Session::open();
    let start = now();
    let (mut circuit, (input, output)) = Runtime::init_circuit(1, |circuit| {
        let (edges, input) = circuit.add_input_zset::<Pair>();
        let closure = circuit.recursive(|child, closure: Stream<_, OrdZSet<Pair>>| {
            let edges = edges.delta0(child);
            let back = edges.map_index(|Tup2(x, z)| (*z, *x));
            let ends = closure.map_index(|Tup2(z, y)| (*z, *y));
            Ok(back.join(&ends, |_z, x, y| Tup2(*x, *y)).plus(&edges))
        })?;
        Ok((input, closure.output()))
    })
    .unwrap();
    for (x, y) in &session.edges {
        input.push(Tup2(*x, *y), 1);
    }
    circuit.transaction().unwrap();
    session.report_initial(now() - start, output.consolidate().iter().count());
    for i in 0..session.operations.len() {
        let (edge, weight) = (session.operations[i].edge, session.operations[i].weight);
        let start = now();
        input.push(Tup2(edge.0, edge.1), weight);
        circuit.transaction().unwrap();
        let changes = output.consolidate();
        let time = now() - start;
        session.report(time, changes.iter().map(|(Tup2(x, y), _, weight)| ((x, y), weight)));
    }
    circuit.kill().unwrap();
}
