//! `sample=MEMBER+MEMBER...`: adds members to an event's samples.

use perf_prof_capture::EventRequest;
use perf_prof_format::{abi::*, record::SampleMember, spec::similar_names};

use super::{SourceError, Stacks};

/// The number of bytes of the user stack that are copied into each sample. This is perf's default.
const STACK_USER: u32 = 8192;

/// Another form of `weight`. [`SampleMember`] has no name for it.
const WEIGHT_STRUCT: &str = "weight_struct";

/// Adds the member with this name to the samples of `request`.
pub(super) fn add(name: &str, request: &mut EventRequest, stacks: &mut Stacks) -> Result<(), SourceError> {
    let samples = &mut request.samples;
    if name == WEIGHT_STRUCT {
        samples.sample_type |= PERF_SAMPLE_WEIGHT_STRUCT;
        return Ok(());
    }
    let Some(member) = SampleMember::named(name) else { return Err(unknown(name)) };
    match member {
        SampleMember::Callchain => {
            stacks.asked = true;
            return Ok(());
        }
        SampleMember::Weight => {
            samples.sample_type |= PERF_SAMPLE_WEIGHT;
            return Ok(());
        }
        SampleMember::Read => {
            samples.read_format |= PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING | PERF_FORMAT_ID;
        }
        SampleMember::BranchStack => samples.branch_sample_type |= PERF_SAMPLE_BRANCH_ANY,
        SampleMember::RegsUser => samples.regs_user = ALL_REGISTERS,
        SampleMember::RegsIntr => samples.regs_intr = ALL_REGISTERS,
        SampleMember::StackUser => request.stack_user = STACK_USER,
        _ => {}
    }
    samples.sample_type |= member.bits();
    Ok(())
}

fn unknown(member: &str) -> SourceError {
    let near = similar_names(member, SampleMember::names());
    let known: Vec<&str> = SampleMember::names().chain([WEIGHT_STRUCT]).collect();
    SourceError::Member { member: member.to_owned(), near, known: known.join(" ") }
}
