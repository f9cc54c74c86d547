#include "cc/scheduler/testing/simulation_setups.h"

#include "cc/step/fake_model.h"

namespace pagemill::scheduler {
namespace {

using Setup = SimulationSetup;
using step::StateCheckpoints;

template <typename Change>
void Add(const char* name, Change change, std::vector<Setup>* setups) {
  Setup setup{.name = name};
  change(setup);
  setups->push_back(setup);
}

void AddPools(std::vector<Setup>* setups) {
  Add(
      "Plain", [](Setup&) {}, setups);
  Add(
      "Roomy", [](Setup& s) { s.options.kv_cache.num_blocks = 400; }, setups);
  Add(
      "TightPool", [](Setup& s) { s.options.kv_cache.num_blocks = 9; }, setups);
  Add(
      "BlocksOfOneToken",
      [](Setup& s) { s.options.kv_cache.block_size = 1, s.options.kv_cache.num_blocks = 70; },
      setups);
  Add(
      "NoPrefixCache", [](Setup& s) { s.options.kv_cache.enable_prefix_caching = false; }, setups);
  Add(
      "Sha256",
      [](Setup& s) {
        s.options.kv_cache.hash_algorithm = kv_cache::HashAlgorithm::kSha256;
        s.options.kv_cache.eviction = "reuse";
      },
      setups);
  Add(
      "Pooling",
      [](Setup& s) {
        s.options.pooling = true, s.options.long_prefill_token_threshold = 4;
        s.options.kv_cache.num_blocks = 17;
      },
      setups);
  Add(
      "TokenRows",
      [](Setup& s) {
        s.options.token_rows = true, s.options.long_prefill_token_threshold = 4;
        s.options.max_draft_tokens = 4, s.options.kv_cache.num_blocks = 17;
      },
      setups);
}

void AddSteps(std::vector<Setup>* setups) {
  Add(
      "ThreeStepsInFlight", [](Setup& s) { s.max_steps_in_flight = 3; }, setups);
  Add(
      "StepsThatRunLate",
      [](Setup& s) {
        s.max_steps_in_flight = 3, s.runs_late = true;
        s.options.kv_cache.num_blocks = 17;
      },
      setups);
  Add(
      "FewLogitsRows", [](Setup& s) { s.options.max_num_logits_rows = 3; }, setups);
  Add(
      "UncutPrompts",
      [](Setup& s) { s.options.chunked_prefill = false, s.options.max_num_logits_rows = 24; },
      setups);
  Add(
      "LongPrefillCap", [](Setup& s) { s.options.long_prefill_token_threshold = 5; }, setups);
  Add(
      "PartialPrefills",
      [](Setup& s) {
        s.options.max_partial_prefills = 3, s.options.max_long_partial_prefills = 1;
        s.options.long_prefill_token_threshold = 8, s.max_steps_in_flight = 2;
      },
      setups);
  Add(
      "Budgets",
      [](Setup& s) { s.budgets = true, s.max_steps_in_flight = 2, s.options.decode_ahead = true; },
      setups);
  Add(
      "BudgetsOfPartialPrefills",
      [](Setup& s) {
        s.budgets = true, s.options.max_partial_prefills = 3, s.options.max_draft_tokens = 4;
        s.options.kv_cache.num_blocks = 17;
      },
      setups);
  Add(
      "BudgetsOfUncutPrompts",
      [](Setup& s) {
        s.budgets = true, s.options.chunked_prefill = false, s.options.max_num_logits_rows = 24;
      },
      setups);
  Add(
      "BudgetsWithMedia", [](Setup& s) { s.budgets = true, s.options.max_encoder_tokens = 12; },
      setups);
  Add(
      "Drafts", [](Setup& s) { s.options.max_draft_tokens = 4; }, setups);
  Add(
      "DraftsInATightPool",
      [](Setup& s) {
        s.options.max_draft_tokens = 4, s.options.kv_cache.num_blocks = 9;
        s.max_steps_in_flight = 2;
      },
      setups);
  Add(
      "DecodeAhead", [](Setup& s) { s.options.decode_ahead = true, s.max_steps_in_flight = 2; },
      setups);
  Add(
      "PipelineStages", [](Setup& s) { s.options.pipeline_stages = 3, s.max_steps_in_flight = 3; },
      setups);
  Add(
      "PipelineStagesInATightPool",
      [](Setup& s) {
        s.options.pipeline_stages = 2, s.max_steps_in_flight = 2;
        s.runs_late = true, s.options.kv_cache.num_blocks = 12;
      },
      setups);
  Add(
      "DecodeFarAheadInATightPool",
      [](Setup& s) {
        s.options.decode_ahead = true, s.max_steps_in_flight = 4;
        s.runs_late = true, s.options.kv_cache.num_blocks = 12;
      },
      setups);
}

void AddRoutedExperts(std::vector<Setup>* setups) {
  Add(
      "RoutedExperts",
      [](Setup& s) {
        s.options.routed_experts_per_token = step::FakeModel::kRoutedExpertsPerToken;
        s.options.max_draft_tokens = 4, s.options.kv_cache.num_blocks = 12;
        s.max_steps_in_flight = 2;
      },
      setups);
  Add(
      "RoutedExpertsAhead",
      [](Setup& s) {
        s.options.routed_experts_per_token = step::FakeModel::kRoutedExpertsPerToken;
        s.options.decode_ahead = true, s.max_steps_in_flight = 3, s.runs_late = true;
      },
      setups);
}

void AddDraftsAhead(std::vector<Setup>* setups) {
  const auto add = [setups](const char* name, auto change) {
    Setup setup{.name = name};
    setup.options.max_draft_tokens = 4;
    setup.options.decode_ahead = true;
    setup.max_steps_in_flight = 2;
    change(setup);
    setups->push_back(setup);
  };
  add("DraftsAhead", [](Setup&) {});
  add("DraftsFarAheadInATightPool", [](Setup& s) {
    s.max_steps_in_flight = 4, s.runs_late = true, s.options.kv_cache.num_blocks = 12;
  });
  add("DraftsAheadAndPriorities", [](Setup& s) {
    s.options.policy = "priority", s.options.kv_cache.num_blocks = 17;
    s.options.kv_cache.block_size = 2, s.options.max_num_logits_rows = 8;
  });
  add("DraftsAheadOfWindows", [](Setup& s) {
    s.options.kv_cache.groups = {{},
                                 {.kind = "sliding_window", .window_tokens = 10},
                                 {.kind = "chunked_local", .window_tokens = 12}};
    s.options.kv_cache.num_blocks = 50, s.runs_late = true;
  });
  const auto add_states = [&add](const char* name, step::KvGroupOptions states,
                                 int32_t num_blocks) {
    states.kind = "state_space";
    states.recent_states = 5;
    add(name, [&](Setup& s) {
      s.options.kv_cache.groups = {{}, states};
      s.options.kv_cache.num_blocks = num_blocks, s.runs_late = true;
    });
  };
  add_states("DraftsAheadOfStates", {}, 60);
  add_states("DraftsFarAheadOfStatesInATightPool", {}, 30);
  setups->back().max_steps_in_flight = 4;
  add_states("DraftsAheadOfStatesAtEveryBoundary",
             {.checkpoints = StateCheckpoints::kEveryBoundary}, 60);
  add_states("DraftsAheadOfRecentStatesOnly", {.checkpoints = StateCheckpoints::kNone}, 50);
  add_states("DraftsAheadOfStatesWithTiers", {}, 45);
  setups->back().medium = SimulatedMedium::kTiers;
  add_states("DraftsOfStates", {}, 60);
  setups->back().options.decode_ahead = false;
  add("DraftsAheadWithTiersAndMedia", [](Setup& s) {
    s.options.max_encoder_tokens = 12, s.options.max_adapters = 1, s.max_steps_in_flight = 3;
    s.runs_late = true, s.medium = SimulatedMedium::kTiers;
  });
}

void AddPolicies(std::vector<Setup>* setups) {
  Add(
      "Priority",
      [](Setup& s) {
        s.options.policy = "priority", s.max_steps_in_flight = 2;
        s.options.kv_cache.num_blocks = 17;
      },
      setups);
  Add(
      "Fair",
      [](Setup& s) {
        s.options.policy = "fair", s.options.tenant_weights = {{"a", 3}, {"b", 1}};
        s.options.max_waiting_per_tenant = 4, s.options.max_waiting_tokens = 200;
      },
      setups);
}

void AddGroups(std::vector<Setup>* setups) {
  const auto add = [setups](const char* name, std::vector<step::KvGroupOptions> groups,
                            int32_t num_blocks) {
    Setup setup{.name = name};
    groups.insert(groups.begin(), step::KvGroupOptions{});
    setup.options.kv_cache.groups = std::move(groups);
    setup.options.kv_cache.num_blocks = num_blocks;
    setup.max_steps_in_flight = 2;
    setups->push_back(setup);
  };
  add("SlidingWindow", {{.kind = "sliding_window", .window_tokens = 10}}, 40);
  add("ChunkedLocal", {{.kind = "chunked_local", .window_tokens = 12}}, 40);
  add("States", {{.kind = "state_space"}}, 30);
  add("StatesAtEveryBoundary",
      {{.kind = "state_space", .checkpoints = StateCheckpoints::kEveryBoundary}}, 36);
  add("OneStateEach", {{.kind = "state_space", .checkpoints = StateCheckpoints::kNone}}, 24);
  add("LargeBlocks",
      {{.kind = "sliding_window", .block_size = 8, .window_tokens = 12},
       {.kind = "state_space", .block_size = 8}},
      50);
  add("HybridWithTiers", {{.kind = "sliding_window", .window_tokens = 10}}, 50);
  setups->back().medium = SimulatedMedium::kTiers;
  // With another order too little is loaded for failures of loads to occur.
  setups->back().options.kv_cache.eviction = "lru";
  setups->back().runs_late = true;
  add("HybridWithFiles", {{.kind = "sliding_window", .window_tokens = 10}}, 50);
  setups->back().medium = SimulatedMedium::kFiles;
  add("HybridWithPeer", {{.kind = "sliding_window", .window_tokens = 10}}, 50);
  setups->back().medium = SimulatedMedium::kPeer;
  add("StatesWithTiers", {{.kind = "state_space"}}, 40);
  setups->back().medium = SimulatedMedium::kTiers;
}

void AddParts(std::vector<Setup>* setups) {
  Add(
      "Adapters", [](Setup& s) { s.options.max_adapters = 2, s.max_steps_in_flight = 2; }, setups);
  Add(
      "Media",
      [](Setup& s) {
        s.options.max_encoder_tokens = 12, s.options.encoder_cache_tokens = 20;
        s.max_steps_in_flight = 2;
      },
      setups);
  Add(
      "MediaThatAreNotCut",
      [](Setup& s) {
        s.options.max_encoder_tokens = 10, s.options.chunked_media_input = false;
        s.options.max_num_logits_rows = 16, s.options.policy = "priority";
        s.options.kv_cache.num_blocks = 17;
      },
      setups);
  Add(
      "MediaAdaptersAndTiers",
      [](Setup& s) {
        s.options.max_encoder_tokens = 12, s.options.max_adapters = 1;
        s.max_steps_in_flight = 3, s.runs_late = true, s.medium = SimulatedMedium::kTiers;
        s.options.max_partial_prefills = 2, s.options.decode_ahead = true;
      },
      setups);
}

void AddTransfers(std::vector<Setup>* setups) {
  const auto add = [setups](const char* name, auto change) {
    Setup setup{.name = name, .medium = SimulatedMedium::kTiers};
    change(setup);
    setups->push_back(setup);
  };
  add("HostTier", [](Setup&) {});
  add("HostTierArc", [](Setup& s) { s.tier_policy = "arc"; });
  add("HostAndDisk", [](Setup& s) { s.host_blocks = 12, s.disk_blocks = 40; });
  add("DiskOnly", [](Setup& s) { s.host_blocks = 0, s.disk_blocks = 40; });
  add("Files", [](Setup& s) { s.medium = SimulatedMedium::kFiles; });
  add("FilesAndStepsThatRunLate", [](Setup& s) {
    s.medium = SimulatedMedium::kFiles, s.max_steps_in_flight = 3, s.runs_late = true;
  });
  add("Peer", [](Setup& s) { s.medium = SimulatedMedium::kPeer; });
  add("PeerAndStepsThatRunLate", [](Setup& s) {
    s.medium = SimulatedMedium::kPeer, s.max_steps_in_flight = 3, s.runs_late = true;
    s.options.kv_cache.num_blocks = 17, s.percent_abandoned = 5;
    s.options.decode_ahead = true;
  });
  add("TiersInATightPool", [](Setup& s) {
    s.options.kv_cache.num_blocks = 17, s.max_steps_in_flight = 2, s.runs_late = true;
  });
  add("MostTransfersFail", [](Setup& s) { s.percent_failing = 70; });
  add("NoTransferFails", [](Setup& s) { s.percent_failing = 0; });
  add("Abandoned", [](Setup& s) { s.percent_abandoned = 10; });
  add("FaultlessTiers",
      [](Setup& s) { s.controls = s.faults = s.streams = false, s.max_steps_in_flight = 2; });
}

}  // namespace

std::vector<SimulationSetup> SimulationSetups() {
  std::vector<SimulationSetup> setups;
  AddPools(&setups);
  AddSteps(&setups);
  AddRoutedExperts(&setups);
  AddDraftsAhead(&setups);
  AddPolicies(&setups);
  AddGroups(&setups);
  AddParts(&setups);
  AddTransfers(&setups);
  return setups;
}

}  // namespace pagemill::scheduler
