//! What the cache of replies tells.

use prometheus_client::{collector::Collector, encoding::DescriptorEncoder, metrics::MetricType};
use starling_llm::{CacheFigures, CachedModel, Model as _, Source};
use std::{fmt, sync::Arc};

/// Tells how often a cache had the reply, and how full it is.
pub struct CacheCollector(pub Arc<CachedModel>);

impl fmt::Debug for CacheCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CacheCollector").field(&self.0.info()).finish()
    }
}

impl Collector for CacheCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let CacheFigures { counts, memory, disk } = self.0.figures();
        let help = "Questions that were answered without a call, by where the reply came from";
        let mut hits = encoder.encode_descriptor("model_cache_hits", help, None, MetricType::Counter)?;
        for (purpose, counts) in &counts {
            for source in Source::ALL {
                let labels = [("purpose", purpose.name()), ("source", source.name())];
                let count = counts.hits(source);
                hits.encode_family(&labels)?.encode_counter::<[(&str, &str); 0], _, u64>(&count, None)?;
            }
        }
        let help = "Questions that were asked because the cache had no reply";
        let mut misses = encoder.encode_descriptor("model_cache_misses", help, None, MetricType::Counter)?;
        for (purpose, counts) in &counts {
            let labels = [("purpose", purpose.name())];
            misses
                .encode_family(&labels)?
                .encode_counter::<[(&str, &str); 0], _, u64>(&counts.misses, None)?;
        }
        let stores = [("memory", Some(memory)), ("disk", disk)];
        let stores = stores.into_iter().filter_map(|(name, size)| Some((name, size?)));
        let help = "Replies that are kept";
        let mut entries = encoder.encode_descriptor("model_cache_entries", help, None, MetricType::Gauge)?;
        for (name, (count, _)) in stores.clone() {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            entries.encode_family(&[("store", name)])?.encode_gauge(&count)?;
        }
        let help = "What the replies that are kept take, in bytes";
        let mut bytes = encoder.encode_descriptor("model_cache_bytes", help, None, MetricType::Gauge)?;
        for (name, (_, size)) in stores {
            let size = i64::try_from(size).unwrap_or(i64::MAX);
            bytes.encode_family(&[("store", name)])?.encode_gauge(&size)?;
        }
        Ok(())
    }
}
