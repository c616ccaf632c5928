//! `alloc`: memory that the kernel allocates, until it is freed.

use super::{Field, Rule, Scope, SourceDefinition};
use crate::event::{SpanTask, SpanView};

/// Since Linux 6.4, kfree() may free memory of kmem_cache_alloc(), and kmem_cache_free() may free memory of kmalloc(). So
/// the events of both functions end spans of either kind. Addresses up to 16 are left out: 0 means that an allocation
/// failed, and 16 stands for 0 bytes (`ZERO_SIZE_PTR` in include/linux/slab.h).
///
/// If an address is allocated again, a function without an event freed it, such as `kmem_cache_free_bulk()`.
pub(super) const ALLOC: SourceDefinition = SourceDefinition {
    name: "alloc",
    about: "the life of memory in the kernel, from kmalloc() or kmem_cache_alloc() until it is freed",
    example: "alloc/cache=dentry|inode*/open/stack/",
    rules: &[
        Rule::begin("kmem:kmalloc", "ptr").when("ptr > 16"),
        Rule::begin("kmem:kmem_cache_alloc", "ptr").when("ptr > 16"),
        // Up to Linux 6.0, allocations for a NUMA node have events of their own.
        Rule::begin("kmem:kmalloc_node", "ptr").when("ptr > 16").optional(),
        Rule::begin("kmem:kmem_cache_alloc_node", "ptr").when("ptr > 16").optional(),
        Rule::end("kmem:kfree", "ptr").when("ptr > 16"),
        Rule::end("kmem:kmem_cache_free", "ptr").when("ptr > 16"),
    ],
    task: SpanTask::OfBegin,
    scope: Scope::Machine,
    fields: &[
        Field::uint("bytes", "bytes that it takes", |span| span.begin().uint("bytes_alloc")),
        Field::uint("requested", "bytes that were asked for", |span| span.begin().uint("bytes_req")),
        Field::text("site", "the place in the kernel that allocated it, as symbol+offset", |span| {
            span.shown(&span.begin(), "call_site")
        }),
        Field::text("cache", "name of the cache; empty for kmalloc() and on kernels that do not tell it", |span| {
            cache(span).into()
        }),
        Field::text("freed_by", "the place in the kernel that freed it; empty if it is not freed", |span| {
            span.end().map_or(b"".into(), |end| span.shown(&end, "call_site"))
        }),
        Field::address("ptr", "its address", |span| span.key(0) as u64),
    ],
    ..SourceDefinition::EMPTY
};

/// Returns the name of the cache. On some kernels, only the event of the freeing contains the name.
fn cache<'a>(span: &SpanView<'a>) -> &'a [u8] {
    match (span.begin().text("name"), span.end()) {
        (b"", Some(end)) if span.begin().is("kmem_cache_alloc") => end.text("name"),
        (name, _) => name,
    }
}
