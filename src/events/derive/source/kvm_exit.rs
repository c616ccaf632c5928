//! `kvm-exit`: exits of virtual machines.

use super::{Field, Rule, Scope, SourceDefinition};
use crate::event::SpanTask;

/// The key is the thread, because each virtual CPU has a thread. The number of the virtual CPU would be ambiguous: several
/// virtual machines have a CPU 0.
pub(super) const KVM_EXIT: SourceDefinition = SourceDefinition {
    name: "kvm-exit",
    about: "the time from the exit of a virtual CPU to its next entry, for which the host does its work",
    example: "kvm-exit/reason=EPT_VIOLATION, min=100us/",
    rules: &[Rule::begin("kvm:kvm_exit", "_tid"), Rule::end("kvm:kvm_entry", "_tid")],
    task: SpanTask::OfEnd,
    scope: Scope::Task,
    fields: &[
        Field::text("reason", "why it exited, as the kernel names it: HLT, IO_INSTRUCTION, hlt, npf, ...", |span| {
            reason(&span.text(&span.begin())).to_vec().into()
        }),
        Field::uint("vcpu", "number of the virtual CPU; 0 on kernels that do not tell it", |span| {
            span.begin().uint("vcpu_id")
        }),
        Field::address("rip", "address of the instruction at which the guest exited", |span| {
            // On arm64, the field is named `vcpu_pc`.
            span.begin().uint("guest_rip") | span.begin().uint("vcpu_pc")
        }),
    ],
    ..SourceDefinition::EMPTY
};

/// Returns the reason from the text of a `kvm_exit` sample. On x86, the text starts with `vcpu 0 reason HLT rip 0x`. On
/// arm64, it starts with `TRAP: HSR_EC: 0x0001 (WFx), PC: 0x` or `IRQ: `.
fn reason(text: &[u8]) -> &[u8] {
    let find = |text: &[u8], part: &[u8]| text.windows(part.len()).position(|at| at == part);
    let between = |from: &[u8], to: &[u8]| {
        let rest = &text[find(text, from)? + from.len()..];
        Some(&rest[..find(rest, to)?])
    };
    let of_arm = || match text.starts_with(b"TRAP: ") {
        true => between(b"(", b")"),
        false => find(text, b": ").map(|end| &text[..end]),
    };
    between(b"reason ", b" rip ").or_else(of_arm).unwrap_or(b"")
}

#[cfg(test)]
mod tests {
    use super::{super::made::*, *};

    /// The kernel's print format, with fewer reasons.
    const EVENTS: [MadeEvent; 2] = [
        MadeEvent {
            name: "kvm:kvm_exit",
            fields: &[
                "unsigned int exit_reason",
                "unsigned long guest_rip",
                "unsigned int isa",
                "unsigned int vcpu_id",
            ],
            print: "\"vcpu %u reason %s%s%s rip 0x%lx\", REC->vcpu_id, (REC->isa == 1) ? \
                    __print_symbolic(REC->exit_reason & 0xffff, { 12, \"HLT\" }, { 30, \"IO_INSTRUCTION\" }) : \
                    __print_symbolic(REC->exit_reason, { 0x078, \"hlt\" }, { 0x400, \"npf\" }), \
                    (REC->isa == 1 && REC->exit_reason & ~0xffff) ? \" \" : \"\", \
                    (REC->isa == 1) ? __print_flags(REC->exit_reason & ~0xffff, \" \", { 0x80000000, \
                    \"FAILED_VMENTRY\" }) : \"\", REC->guest_rip",
        },
        MadeEvent { name: "kvm:kvm_entry", fields: &["unsigned int vcpu_id"], print: "\"vcpu %u\", REC->vcpu_id" },
    ];

    #[test]
    fn an_exit_has_the_kernels_name_of_its_reason() {
        let mut run = MadeRun::start(&KVM_EXIT, "kvm-exit", &EVENTS);
        let [exit, entry] = EVENTS.map(|event| event.name);
        let sample = |event, tid, time, fields| MadeSample { event, tid, cpu: 0, time, fields };
        let spans = run.spans(&[
            sample(entry, 7, 90, &[("vcpu_id", 0)]),
            sample(exit, 7, 100, &[("exit_reason", 30), ("isa", 1), ("guest_rip", 0x1000), ("vcpu_id", 0)]),
            // A virtual CPU of another virtual machine.
            sample(exit, 8, 110, &[("exit_reason", 12), ("isa", 1), ("guest_rip", 0x2000), ("vcpu_id", 0)]),
            sample(entry, 7, 150, &[("vcpu_id", 0)]),
            sample(exit, 9, 160, &[("exit_reason", 0x400), ("isa", 2), ("guest_rip", 0x3000), ("vcpu_id", 3)]),
            sample(entry, 9, 170, &[("vcpu_id", 3)]),
            sample(entry, 8, 180, &[("vcpu_id", 0)]),
            sample(exit, 8, 190, &[("exit_reason", 0x8000_001e), ("isa", 1), ("vcpu_id", 0)]),
            sample(entry, 8, 191, &[("vcpu_id", 0)]),
        ]);
        assert_eq!(
            spans,
            [
                "0.000050 ms reason=IO_INSTRUCTION vcpu=0 rip=0x1000",
                "0.000010 ms reason=npf vcpu=3 rip=0x3000",
                "0.000070 ms reason=HLT vcpu=0 rip=0x2000",
                "0.000001 ms reason=IO_INSTRUCTION FAILED_VMENTRY vcpu=0 rip=0x0",
            ]
        );
        assert_eq!(run.counts(), [4, 4, 0, 1]);
    }

    #[test]
    fn on_arm64_a_trap_has_its_class() {
        let fields = &["int ret", "unsigned int esr_ec", "unsigned long vcpu_pc"];
        let print = "\"%s: HSR_EC: 0x%04x (%s), PC: 0x%016lx\", __print_symbolic(REC->ret, { 0, \"IRQ\" }, { 2, \"TRAP\" }), \
                     REC->esr_ec, __print_symbolic(REC->esr_ec, { 1, \"WFx\" }), REC->vcpu_pc";
        let [_, entry] = EVENTS;
        let mut run =
            MadeRun::start(&KVM_EXIT, "kvm-exit", &[MadeEvent { name: "kvm:kvm_exit", fields, print }, entry]);
        let sample = |event, time, fields| MadeSample { event, tid: 7, cpu: 0, time, fields };
        let spans = run.spans(&[
            sample("kvm:kvm_exit", 1, &[("ret", 2), ("esr_ec", 1)]),
            sample("kvm:kvm_entry", 2, &[]),
            sample("kvm:kvm_exit", 3, &[("ret", 0), ("vcpu_pc", 0x40)]),
            sample("kvm:kvm_entry", 5, &[]),
        ]);
        assert_eq!(spans, ["0.000001 ms reason=WFx vcpu=0 rip=0x0", "0.000002 ms reason=IRQ vcpu=0 rip=0x40"]);
    }

    #[test]
    fn an_unknown_reason_is_a_number() {
        let mut run = MadeRun::start(&KVM_EXIT, "kvm-exit/reason=0x4d/", &EVENTS);
        let [exit, entry] = EVENTS.map(|event| event.name);
        let sample = |event, time, fields| MadeSample { event, tid: 7, cpu: 0, time, fields };
        let spans =
            run.spans(&[sample(exit, 1, &[("exit_reason", 0x4d), ("isa", 1)]), sample(entry, 2, &[("vcpu_id", 0)])]);
        assert_eq!(spans, ["0.000001 ms reason=0x4d vcpu=0 rip=0x0"]);
    }
}
